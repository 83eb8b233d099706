// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/collective_profile.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/comm/simulated.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr char const* kSchema = "ballast.collectives/1";
constexpr std::array kOperations = {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                                    Operation::send};

/// The points of one operation and level with the group size nearest to `ranks`, by bytes. Among two equally near sizes
/// the smaller, so that the answer does not depend on the order of the points.
std::vector<CollectivePoint> nearest_points(std::vector<CollectivePoint> const& points, Operation operation,
                                            LinkLevel level, int ranks) {
  auto const matches = [&](CollectivePoint const& point) {
    return point.operation == operation && point.level == level;
  };
  int nearest = 0;
  for (auto const& point : points) {
    if (!matches(point)) continue;
    int const distance = std::abs(point.ranks - ranks);
    int const best = std::abs(nearest - ranks);
    if (nearest == 0 || distance < best || (distance == best && point.ranks < nearest)) nearest = point.ranks;
  }
  std::vector<CollectivePoint> result;
  std::copy_if(points.begin(), points.end(), std::back_inserter(result),
               [&](CollectivePoint const& point) { return matches(point) && point.ranks == nearest; });
  std::sort(result.begin(), result.end(),
            [](CollectivePoint const& a, CollectivePoint const& b) { return a.bytes < b.bytes; });
  return result;
}

/// Piecewise linear through `points` (by bytes, not empty); constant below the smallest, proportional above the largest.
double interpolate(std::vector<CollectivePoint> const& points, std::int64_t bytes) {
  if (bytes <= points.front().bytes) return points.front().seconds;
  auto const& largest = points.back();
  if (bytes >= largest.bytes) {
    return largest.seconds * (static_cast<double>(bytes) / static_cast<double>(largest.bytes));
  }
  auto const above =
      std::upper_bound(points.begin(), points.end(), bytes,
                       [](std::int64_t value, CollectivePoint const& point) { return value < point.bytes; });
  auto const below = above - 1;
  double const part = static_cast<double>(bytes - below->bytes) / static_cast<double>(above->bytes - below->bytes);
  return below->seconds + part * (above->seconds - below->seconds);
}

/// Group sizes a planner asks for: every small one, then powers of two, and those that the topology itself has.
std::set<int> group_sizes(int largest, std::set<int> occurring) {
  constexpr int every_size_until = 64;
  for (int size = 2; size <= std::min(largest, every_size_until); ++size) occurring.insert(size);
  for (int size = 2 * every_size_until; size <= largest; size *= 2) occurring.insert(size);
  occurring.erase(occurring.begin(), occurring.lower_bound(2));
  return occurring;
}

/// The ring formula is linear in bytes, so two points far apart say it exactly.
void add_default_points(std::vector<CollectivePoint>& points, Topology const& topology, LinkLevel level,
                        LinkSpeed const& link, std::set<int> const& sizes) {
  constexpr std::array<std::int64_t, 2> all_bytes = {1, std::int64_t{1} << 40};
  for (auto const operation : kOperations) {
    for (int const ranks : operation == Operation::send ? std::set<int>{2} : sizes) {
      int const steps = operation == Operation::all_reduce ? 2 * (ranks - 1) : ranks - 1;
      for (auto const bytes : all_bytes) {
        double const seconds = operation == Operation::send
                                   ? link.latency_s + static_cast<double>(bytes) / link.bytes_per_s
                                   : ring_seconds(link, ranks, steps, bytes);
        points.push_back({operation, level, ranks, bytes, seconds * topology.dilation});
      }
    }
  }
}

}  // namespace

double algbw(CollectivePoint const& point) { return static_cast<double>(point.bytes) / point.seconds; }

double busbw(CollectivePoint const& point) {
  double const p = point.ranks;
  switch (point.operation) {
    case Operation::all_reduce:
      return algbw(point) * 2.0 * (p - 1.0) / p;
    case Operation::all_gather:
    case Operation::reduce_scatter:
      return algbw(point) * (p - 1.0) / p;
    case Operation::send:
      break;
  }
  return algbw(point);
}

double CollectiveProfile::seconds(Operation operation, LinkLevel level, int ranks, std::int64_t bytes) const {
  if (ranks <= 1) return 0.0;
  int const group = operation == Operation::send ? 2 : ranks;
  auto nearest = nearest_points(points, operation, level, group);
  if (nearest.empty()) {
    auto const other = level == LinkLevel::node ? LinkLevel::network : LinkLevel::node;
    nearest = nearest_points(points, operation, other, group);
  }
  if (nearest.empty()) {
    throw InvalidArgument(fmt::format("the collective profile has no point of {}: measure again, or use the defaults",
                                      to_string(operation)));
  }
  return interpolate(nearest, bytes) * (group - 1) / (nearest.front().ranks - 1);
}

CollectiveProfile default_collective_profile(Topology const& topology) {
  std::vector<int> ranks_of_node(topology.nodes.size(), 0);
  for (auto const& device : topology.devices) ++ranks_of_node[device.node];
  int const widest = ranks_of_node.empty() ? 0 : *std::max_element(ranks_of_node.begin(), ranks_of_node.end());
  int const num_nodes = static_cast<int>(topology.nodes.size());

  CollectiveProfile profile;
  add_default_points(profile.points, topology, LinkLevel::node, {2e-6, 5e9},
                     group_sizes(widest, {ranks_of_node.begin(), ranks_of_node.end()}));
  add_default_points(profile.points, topology, LinkLevel::network, {30e-6, 1e9},
                     group_sizes(topology.num_ranks(), {num_nodes, topology.num_ranks()}));
  return profile;
}

std::string to_string(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::all_gather:
      return "all_gather";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::send:
      break;
  }
  return "send";
}

Operation parse_operation(std::string_view name) {
  for (auto const operation : kOperations) {
    if (to_string(operation) == name) return operation;
  }
  throw DataError(
      fmt::format("operation: expected all_reduce, all_gather, reduce_scatter or send, found \"{}\"", name));
}

std::string to_json(CollectiveProfile const& profile) {
  nlohmann::ordered_json json = {
      {"schema", kSchema}, {"measured", profile.measured}, {"points", nlohmann::ordered_json::array()}};
  for (auto const& point : profile.points) {
    json["points"].push_back({{"operation", to_string(point.operation)},
                              {"level", to_string(point.level)},
                              {"ranks", point.ranks},
                              {"bytes", point.bytes},
                              {"seconds", point.seconds}});
  }
  return json.dump(2) + "\n";
}

CollectiveProfile collective_profile_from_json(std::string_view text, std::string const& source) {
  auto const json = parse_json(text, source);
  JsonReader reader(json, source);
  reader.schema(kSchema);
  CollectiveProfile profile;
  profile.measured = reader.flag("measured");
  std::set<std::tuple<Operation, LinkLevel, int, std::int64_t>> known;
  for (auto& entry : reader.objects("points")) {
    CollectivePoint point;
    try {
      point.operation = parse_operation(entry.text("operation"));
    } catch (DataError const&) {
      entry.fail("operation", "all_reduce, all_gather, reduce_scatter or send");
    }
    try {
      point.level = parse_link_level(entry.text("level"));
    } catch (DataError const&) {
      entry.fail("level", "node or network");
    }
    point.ranks = static_cast<int>(entry.integer("ranks", 2, std::numeric_limits<int>::max()));
    if (point.operation == Operation::send && point.ranks != 2) entry.fail("ranks", "2 for send");
    point.bytes = entry.integer("bytes", 1);
    point.seconds = entry.number("seconds");
    if (point.seconds <= 0) entry.fail("seconds", "a finite number above 0");
    entry.finish();
    if (!known.insert({point.operation, point.level, point.ranks, point.bytes}).second) {
      entry.fail("bytes", "each size once per operation, level and ranks");
    }
    profile.points.push_back(point);
  }
  reader.finish();
  return profile;
}

}  // namespace ballast
