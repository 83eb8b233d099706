// SPDX-License-Identifier: Apache-2.0
/// The machine as a value: nodes, one device per rank, and the two levels of links between them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Where two ranks, or a whole group of them, meet.
enum class LinkLevel : std::int32_t { node, network };

/// One host as discovered.
struct Node {
  std::string host;
  int sockets = 1;
  int numa_nodes = 1;
  int cores = 1;                   ///< usable by the job (affinity and cgroup respected)
  std::int64_t memory_bytes = 0;   ///< least of physical memory and cgroup limit
  std::vector<std::string> gpus;   ///< names in hwloc's order; empty without GPUs
  friend bool operator==(Node const&, Node const&) = default;
};

/// What one rank computes on.
///
/// Example: on a simulated cluster with dilation 2, a device of speed 0.5 needs 4 s for a layer that takes 1 s of CPU time.
struct Device {
  int node = 0;                    ///< index into Topology::nodes
  std::string kind;                ///< class of the device, e.g. "cpu", "NVIDIA H200" or the name in a cluster file
  std::int64_t memory_bytes = 0;   ///< what tensors on this device may take in all; allocation beyond it fails
  double speed = 1.0;              ///< relative; the device that was profiled has 1
  friend bool operator==(Device const&, Device const&) = default;
};

/// The ranks of a job on their nodes. Plain value, JSON "ballast.topology/1".
struct Topology {
  std::vector<Node> nodes;
  std::vector<Device> devices;     ///< by rank
  bool simulated = false;          ///< devices and links behave as a cluster file says
  double dilation = 1.0;           ///< simulated: seconds of the job per second of the described cluster; else 1
  friend bool operator==(Topology const&, Topology const&) = default;

  int num_ranks() const noexcept { return static_cast<int>(devices.size()); }
  /// The level of the slowest link inside the group `ranks` (one node: node).
  LinkLevel level(std::vector<int> const& ranks) const;
};

std::string to_string(LinkLevel level);
/// @throws DataError naming the value.
LinkLevel parse_link_level(std::string_view name);

/// Returns the value as indented JSON text, the same bytes for the same value.
std::string to_json(Topology const& topology);
/// Returns the value read from JSON text; `source` names it in errors. @throws DataError.
Topology topology_from_json(std::string_view text, std::string const& source);

/// Hash of what a plan depends on: nodes of ranks, kinds, memory and speeds (not host names).
std::string fingerprint(Topology const& topology);

}  // namespace ballast
