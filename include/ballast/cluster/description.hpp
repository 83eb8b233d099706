// SPDX-License-Identifier: Apache-2.0
/// The description of a simulated cluster: which ranks form which node, and how devices and links behave.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/cluster/topology.hpp"
#include "ballast/comm/simulated.hpp"

namespace ballast {

struct DescribedDevice {
  std::string kind = "device";
  std::int64_t memory_bytes = 0;  ///< must be given and above 0 in a file
  double speed = 1.0;
  friend bool operator==(DescribedDevice const&, DescribedDevice const&) = default;
};

struct DescribedNode {
  std::string name;
  std::vector<DescribedDevice> devices;  ///< ranks are numbered through nodes and devices in file order
  friend bool operator==(DescribedNode const&, DescribedNode const&) = default;
};

/// A cluster file, read. Format in docs/formats.md:
/// @code
/// schema = "ballast.cluster/1"
/// dilation = 2.0                       # optional; default max(1, ranks / cores)
/// [links]
/// node    = { latency = "5us",  bandwidth = "4GB/s" }
/// network = { latency = "50us", bandwidth = "400MB/s" }
/// [[node]]
/// name = "node0"
/// devices = [ { kind = "large", memory = "64MiB", speed = 1.0, count = 2 } ]
/// @endcode
struct ClusterDescription {
  std::string source;                    ///< file name, for errors
  std::vector<DescribedNode> nodes;
  LinkSpeed within_node;
  LinkSpeed between_nodes;
  double dilation = 0.0;                 ///< 0: choose from ranks and cores
  int num_ranks() const noexcept;
};

/// @throws InvalidArgument naming file, line, key and what was expected.
ClusterDescription read_cluster_file(std::filesystem::path const& path);
ClusterDescription parse_cluster(std::string_view text, std::string const& source);

/// Returns the topology that the description says, with `cores` of the machine deciding the dilation if it is not given.
/// @throws InvalidArgument if `num_ranks` differs from the description's number of devices, naming both.
Topology described_topology(ClusterDescription const& description, int num_ranks, int cores);

/// Returns the link delays of a described topology.
LinkDelays link_delays(ClusterDescription const& description, Topology const& topology);

}  // namespace ballast
