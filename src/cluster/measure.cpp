// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/measure.hpp"

#include "ballast/comm/collective.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr int kMinRounds = 3;
constexpr int kMaxRounds = 31;
constexpr int kSizeFactor = 4;
constexpr std::int64_t kElementBytes = sizeof(float);
constexpr double kClockResolution_s = 1e-9;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Ranks that are measured together.
struct Group {
  LinkLevel level = LinkLevel::node;
  int ranks = 0;                          ///< of the group whose times count
  bool counts = false;                    ///< this rank's times count
  bool sends = false;                     ///< also measure messages
  std::unique_ptr<Communicator> owned{};  ///< behind `comm`, when it is not the world
  Communicator* comm = owned.get();       ///< null: this rank only waits
};

/// One point to be measured and the times of its rounds.
struct Series {
  std::size_t group = 0;
  Operation operation = Operation::send;
  std::int64_t elements = 0;
  std::vector<double> seconds;  ///< by round, of the slowest rank
};

void check(Communicator const& world, Topology const& topology, MeasureOptions const& options) {
  if (topology.num_ranks() != world.size()) {
    throw InvalidArgument(fmt::format("the topology has {} ranks, the job {}", topology.num_ranks(), world.size()));
  }
  if (!std::isfinite(options.budget_s) || options.budget_s <= 0) {
    throw InvalidArgument(fmt::format("budget: expected seconds above 0, found {}", options.budget_s));
  }
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes) {
    throw InvalidArgument(fmt::format("sizes: expected 1 <= min_bytes <= max_bytes, found {} and {}", options.min_bytes,
                                      options.max_bytes));
  }
}

/// Collective over `world`.
std::vector<Group> make_groups(Communicator& world, Topology const& topology) {
  std::vector<int> ranks_of_node(topology.nodes.size(), 0);
  std::vector<int> first_of_node(topology.nodes.size(), -1);
  for (int rank = 0; rank < topology.num_ranks(); ++rank) {
    int const node = topology.devices[rank].node;
    if (ranks_of_node[node]++ == 0) first_of_node[node] = rank;
  }
  auto const wide = std::find_if(ranks_of_node.begin(), ranks_of_node.end(), [](int ranks) { return ranks >= 2; });
  auto const used_nodes =
      static_cast<int>(std::count_if(ranks_of_node.begin(), ranks_of_node.end(), [](int ranks) { return ranks >= 1; }));
  int const node = topology.devices[world.rank()].node;

  std::vector<Group> groups;
  if (wide != ranks_of_node.end()) {
    bool const counts = node == wide - ranks_of_node.begin();
    groups.push_back(
        {LinkLevel::node, *wide, counts, true, world.split(ranks_of_node[node] >= 2 ? node : -1, world.rank())});
  }
  if (used_nodes >= 2) {
    bool const is_first = first_of_node[node] == world.rank();
    groups.push_back({LinkLevel::network, used_nodes, is_first, true, world.split(is_first ? 0 : -1, world.rank())});
    if (world.size() > used_nodes) groups.push_back({LinkLevel::network, world.size(), true, false, nullptr, &world});
  }
  return groups;
}

/// The points in the order of their measurement: by size, so that the budget cuts the largest sizes off.
std::vector<std::vector<Series>> make_series(std::vector<Group> const& groups, MeasureOptions const& options) {
  std::vector<std::vector<Series>> by_size;
  std::vector<std::int64_t> last_elements(groups.size(), 0);
  for (auto bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= kSizeFactor) {
    std::vector<Series> all;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      // Whole elements, as many on every rank.
      auto const unit = groups[group].ranks * kElementBytes;
      auto const elements = (bytes + unit - 1) / unit * groups[group].ranks;
      if (elements == last_elements[group]) continue;  // rounding made it the size before
      last_elements[group] = elements;
      for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter}) {
        all.push_back({group, operation, elements, {}});
      }
      if (groups[group].sends) all.push_back({group, Operation::send, elements, {}});
    }
    if (!all.empty()) by_size.push_back(std::move(all));
    if (bytes > options.max_bytes / kSizeFactor) break;  // before the product overflows
  }
  return by_size;
}

/// Measures single points; owns the buffers, so that no measurement pays for fresh pages.
class Stopwatch {
 public:
  Stopwatch(Communicator& world, std::vector<Group> const& groups, std::int64_t max_elements)
      : world_(world), groups_(groups), source_(max_elements, 0.0F), target_(max_elements, 0.0F) {}

  /// Returns this rank's seconds, 0 if they do not count. Collective over the world.
  double run(Series const& series) {
    auto const& group = groups_[series.group];
    world_.barrier();
    auto const start = Clock::now();
    if (group.comm != nullptr) run_on(*group.comm, series);
    double const elapsed_s = seconds_since(start);
    if (!group.counts) return 0.0;
    // There and back again is two messages.
    if (series.operation == Operation::send) return group.comm->rank() == 0 ? elapsed_s / 2 : 0.0;
    return elapsed_s;
  }

 private:
  void run_on(Communicator& comm, Series const& series) {
    // Groups of other nodes may be of another size: each takes as near to the same total as its size allows.
    auto const each = std::max<std::int64_t>(1, series.elements / comm.size());
    auto const all = std::min<std::int64_t>(each * comm.size(), std::ssize(target_));
    std::vector<std::int64_t> const counts(comm.size(), all / comm.size());
    switch (series.operation) {
      case Operation::all_reduce:
        comm.all_reduce(target_.data(), all, DataType::float32, ReduceOperation::sum).synchronize();
        break;
      case Operation::all_gather:
        comm.all_gather_v(source_.data(), target_.data(), counts, DataType::float32).synchronize();
        break;
      case Operation::reduce_scatter:
        comm.reduce_scatter_v(source_.data(), target_.data(), counts, DataType::float32).synchronize();
        break;
      case Operation::send:
        ping_pong(comm, series.elements);
        break;
    }
  }

  void ping_pong(Communicator& comm, std::int64_t elements) {
    constexpr int tag = 0;
    std::span<float const> const sent(source_.data(), elements);
    std::span<float> const received(target_.data(), elements);
    if (comm.rank() == 0) {
      auto sending = comm.send(sent, 1, tag);
      comm.recv(received, 1, tag).wait();
      sending.wait();
    } else if (comm.rank() == 1) {
      comm.recv(received, 0, tag).wait();
      comm.send(sent, 0, tag).wait();
    }
  }

  Communicator& world_;
  std::vector<Group> const& groups_;
  std::vector<float> source_;
  std::vector<float> target_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  auto const middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

CollectiveProfile measure_collectives(Communicator& world, Topology const& topology, MeasureOptions const& options) {
  check(world, topology, options);
  CollectiveProfile profile;
  profile.measured = true;
  if (world.size() == 1) return profile;

  auto const groups = make_groups(world, topology);
  auto by_size = make_series(groups, options);
  std::int64_t max_elements = 0;
  for (auto const& series : by_size.back()) max_elements = std::max(max_elements, series.elements);
  std::optional<Stopwatch> stopwatch;
  collectively(world, [&] { stopwatch.emplace(world, groups, max_elements); });

  // All ranks must come to the same decisions, so they look at the slowest rank's clock.
  auto const start = Clock::now();
  auto const elapsed = [&] { return all_reduce_value(world, seconds_since(start), ReduceOperation::max); };

  // Warm-up, once through all points; a size joins while it and kMinRounds rounds of everything fit into the budget.
  std::size_t num_sizes = 0;
  double round_s = 0.0;
  double size_s = 0.0;
  double next_size_s = 0.0;
  while (num_sizes < by_size.size()) {
    if (num_sizes > 0 && (round_s + next_size_s) * (1 + kMinRounds) > options.budget_s) break;
    for (auto const& series : by_size[num_sizes]) stopwatch->run(series);
    double const now_s = elapsed();
    double const last_size_s = std::exchange(size_s, now_s - round_s);
    round_s = now_s;
    // What the last step added grows with the size; the rest is latency. After the first size take half for latency.
    next_size_s =
        num_sizes == 0 ? size_s * kSizeFactor / 2 : std::max(size_s, size_s + kSizeFactor * (size_s - last_size_s));
    ++num_sizes;
  }
  by_size.resize(num_sizes);

  // Round after round through all points, not point after point: a slow phase of the machine then hits all alike, and
  // the median drops it.
  for (int round = 0; round < kMaxRounds; ++round) {
    if (round >= kMinRounds && elapsed() + round_s > options.budget_s) break;
    std::vector<double> seconds;
    for (auto const& all : by_size) {
      for (auto const& series : all) seconds.push_back(stopwatch->run(series));
    }
    // The slowest rank's; a maximum is exact, so all ranks hold the same.
    world.all_reduce(std::span(seconds), ReduceOperation::max).synchronize();
    auto next = seconds.begin();
    for (auto& all : by_size) {
      for (auto& series : all) series.seconds.push_back(std::max(*next++, kClockResolution_s));
    }
  }

  for (auto const& all : by_size) {
    for (auto const& series : all) {
      auto const& group = groups[series.group];
      int const ranks = series.operation == Operation::send ? 2 : group.ranks;
      profile.points.push_back(
          {series.operation, group.level, ranks, series.elements * kElementBytes, median(series.seconds)});
    }
  }
  return profile;
}

}  // namespace ballast
