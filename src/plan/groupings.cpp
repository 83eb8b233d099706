// SPDX-License-Identifier: Apache-2.0
#include "groupings.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace ballast::detail {
namespace {

using Units = std::vector<std::vector<int>>;

constexpr std::size_t kMaxPartitions = 64;  // of kinds of nodes into parts; beyond, all kinds are split alike

auto key(Device const& device) { return std::tie(device.kind, device.memory_bytes, device.speed); }

/// The ranks of each node, equal devices side by side, so that equal nodes look equal.
Units ranks_by_node(Topology const& topology) {
  std::map<int, std::vector<int>> nodes;
  for (int rank = 0; rank < topology.num_ranks(); ++rank)
    nodes[topology.devices[static_cast<std::size_t>(rank)].node].push_back(rank);
  Units result;
  for (auto& [node, ranks] : nodes) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return key(topology.devices[static_cast<std::size_t>(a)]) < key(topology.devices[static_cast<std::size_t>(b)]);
    });
    result.push_back(std::move(ranks));
  }
  return result;
}

/// Splits `ranks` into contiguous parts as equal as can be.
void split(std::vector<int> const& ranks, std::size_t num_parts, Units& units) {
  num_parts = std::min(num_parts, ranks.size());
  for (std::size_t part = 0; part < num_parts; ++part) {
    auto const begin = ranks.begin() + static_cast<std::ptrdiff_t>(part * ranks.size() / num_parts);
    auto const end = ranks.begin() + static_cast<std::ptrdiff_t>((part + 1) * ranks.size() / num_parts);
    units.emplace_back(begin, end);
  }
}

/// 1, 2, 4, ... below `size`, its divisors and itself.
std::vector<std::size_t> part_counts(std::size_t size) {
  std::set<std::size_t> counts;
  for (std::size_t count = 1; count <= size; ++count) {
    bool const is_power = (count & (count - 1)) == 0;
    if (is_power || size % count == 0) counts.insert(count);
  }
  return {counts.begin(), counts.end()};
}

std::vector<int> joined(Units const& nodes) {
  std::vector<int> all;
  for (auto const& ranks : nodes) all.insert(all.end(), ranks.begin(), ranks.end());
  return all;
}

/// Neighbouring nodes joined until a group has `size` ranks; larger nodes are split into parts of about that size.
Units of_about(Units const& nodes, std::size_t size) {
  Units units;
  std::vector<int> open;
  auto const close = [&] {
    if (!open.empty()) units.push_back(std::exchange(open, {}));
  };
  for (auto const& ranks : nodes) {
    if (ranks.size() >= size) {
      close();
      split(ranks, ranks.size() / size, units);
      continue;
    }
    if (open.size() + ranks.size() > size) close();
    open.insert(open.end(), ranks.begin(), ranks.end());
    if (open.size() == size) close();
  }
  close();
  return units;
}

/// Each kind of node in its own number of parts: all combinations, or all kinds alike when these are too many.
std::vector<Units> node_parts(Units const& nodes, Topology const& topology) {
  using NodeKey = std::vector<std::tuple<std::string, std::int64_t, double>>;
  std::map<NodeKey, std::vector<std::size_t>> kinds;  // number of parts to try
  std::vector<NodeKey> keys;
  std::size_t largest = 0;
  for (auto const& ranks : nodes) {
    NodeKey node;
    for (int const rank : ranks) node.emplace_back(key(topology.devices[static_cast<std::size_t>(rank)]));
    kinds.try_emplace(node, part_counts(ranks.size()));
    keys.push_back(std::move(node));
    largest = std::max(largest, ranks.size());
  }
  std::size_t combinations = 1;
  for (auto const& [node, counts] : kinds) combinations = std::min(kMaxPartitions + 1, combinations * counts.size());

  std::vector<Units> result;
  if (combinations > kMaxPartitions) {
    for (auto const count : part_counts(largest)) {
      Units units;
      for (auto const& ranks : nodes) split(ranks, count, units);
      result.push_back(std::move(units));
    }
    return result;
  }
  for (std::size_t combination = 0; combination < combinations; ++combination) {
    std::map<NodeKey, std::size_t> chosen;
    auto rest = combination;
    for (auto const& [node, counts] : kinds) {
      chosen[node] = counts[rest % counts.size()];
      rest /= counts.size();
    }
    Units units;
    for (std::size_t node = 0; node < nodes.size(); ++node) split(nodes[node], chosen[keys[node]], units);
    result.push_back(std::move(units));
  }
  return result;
}

/// Groups of exactly `size` ranks: inside nodes where they go, else over what is left of neighbouring nodes.
Units of_exactly(Units const& nodes, std::size_t size) {
  Units units;
  std::vector<int> open;
  for (auto const& ranks : nodes) {
    std::size_t begin = 0;
    for (; begin + size <= ranks.size(); begin += size) {
      units.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                         ranks.begin() + static_cast<std::ptrdiff_t>(begin + size));
    }
    for (; begin < ranks.size(); ++begin) {
      open.push_back(ranks[begin]);
      if (open.size() == size) units.push_back(std::exchange(open, {}));
    }
  }
  return units;
}

Grouping classified(Units units, Topology const& topology) {
  for (auto& unit : units) {
    std::sort(unit.begin(), unit.end(), [&](int a, int b) {
      auto const& first = topology.devices[static_cast<std::size_t>(a)];
      auto const& second = topology.devices[static_cast<std::size_t>(b)];
      return std::tuple(first.node, key(first), a) < std::tuple(second.node, key(second), b);
    });
  }
  std::sort(units.begin(), units.end());
  Grouping result;
  for (auto const& unit : units) {
    UnitClass candidate;
    for (int const rank : unit) candidate.devices.push_back(topology.devices[static_cast<std::size_t>(rank)]);
    candidate.level = topology.level(unit);
    auto const same = std::find_if(result.classes.begin(), result.classes.end(), [&](UnitClass const& known) {
      return known.level == candidate.level &&
             std::equal(known.devices.begin(), known.devices.end(), candidate.devices.begin(), candidate.devices.end(),
                        [](Device const& a, Device const& b) { return key(a) == key(b); });
    });
    if (same != result.classes.end()) {
      same->units.push_back(unit);
    } else {
      candidate.units.push_back(unit);
      result.classes.push_back(std::move(candidate));
    }
  }
  return result;
}

}  // namespace

int Grouping::num_units() const noexcept {
  std::size_t count = 0;
  for (auto const& unit_class : classes) count += unit_class.units.size();
  return static_cast<int>(count);
}

std::vector<Grouping> groupings(Topology const& topology, std::optional<std::int64_t> group_size) {
  auto const nodes = ranks_by_node(topology);
  auto const num_ranks = static_cast<std::size_t>(topology.num_ranks());
  std::vector<Units> found;
  if (group_size) {
    found.push_back(of_exactly(nodes, static_cast<std::size_t>(*group_size)));
  } else {
    found.push_back({joined(nodes)});
    for (auto& units : node_parts(nodes, topology)) found.push_back(std::move(units));
    for (auto const size : part_counts(num_ranks)) found.push_back(of_about(nodes, size));
    for (auto const& ranks : nodes) found.push_back(of_about(nodes, ranks.size()));
  }

  std::vector<Grouping> result;
  std::set<Units> known;
  for (auto& units : found) {
    for (auto& unit : units) std::sort(unit.begin(), unit.end());
    std::sort(units.begin(), units.end());
    if (!units.empty() && known.insert(units).second) result.push_back(classified(units, topology));
  }
  return result;
}

}  // namespace ballast::detail
