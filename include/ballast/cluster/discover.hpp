// SPDX-License-Identifier: Apache-2.0
/// Asks the machine what it is.
#pragma once

#include <optional>

#include "ballast/cluster/description.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/comm/communicator.hpp"

namespace ballast {

/// Returns this host as hwloc, the affinity mask and the cgroup (v1 or v2) see it. Local.
Node discover_node();

/// Returns the topology of the job: nodes by shared memory, one device per rank, equal on all ranks. Each rank of a node
/// without described devices gets an equal part of 90 % of the node's memory. GPUs are listed, not used.
/// With a description, what it says (nodes, memory, speed, dilation) with the real hosts' facts where it is silent.
/// Collective over `world`. @throws InvalidArgument on all ranks if the number of ranks does not match the description.
Topology discover(Communicator& world, std::optional<ClusterDescription> const& description);

}  // namespace ballast
