// SPDX-License-Identifier: Apache-2.0
/// How the ranks of a job can form groups, each of which may run a stage.
#pragma once

#include "ballast/cluster/topology.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ballast::detail {

/// Groups with equal devices in equal places; they cost the same whatever layers they run.
struct UnitClass {
  std::vector<Device> devices;          ///< of one unit, in the order of its ranks
  LinkLevel level = LinkLevel::node;    ///< of the slowest link inside a unit
  std::vector<std::vector<int>> units;  ///< the ranks of each unit, ascending by first rank
};

/// All ranks divided into units.
///
/// Example: two nodes of two equal ranks give {0,1,2,3}, {0,1} {2,3} and {0} {1} {2} {3}, each of one class.
struct Grouping {
  std::vector<UnitClass> classes;
  int num_units() const noexcept;
};

/// Returns the groupings that the balancer tries: the whole job; neighbouring nodes joined; every node in equal
/// contiguous parts, each kind of node in its own number of parts; single ranks. With `group_size`, only groups of that
/// many ranks (what is left over stays idle). The same topology gives the same list.
std::vector<Grouping> groupings(Topology const& topology, std::optional<std::int64_t> group_size);

}  // namespace ballast::detail
