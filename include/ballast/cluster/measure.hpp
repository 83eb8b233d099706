// SPDX-License-Identifier: Apache-2.0
/// Measures collectives and messages at each level of the machine.
#pragma once

#include <cstdint>

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/comm/communicator.hpp"

namespace ballast {

struct MeasureOptions {
  double budget_s = 10.0;                      ///< wall time for everything; sizes and repetitions shrink to keep it
  std::int64_t min_bytes = 1024;
  std::int64_t max_bytes = 16 * 1024 * 1024;   ///< sizes grow by factors of 4
};

/// Measures all-reduce, all-gather, reduce-scatter and send at level node (the first node with two ranks or more; its
/// ranks, all nodes at the same time) and at level network (one rank per node, and the whole world). Warm-up is dropped,
/// each point is the median of >= 3 repetitions of the slowest rank's time. Equal on all ranks. One rank alone gets no points.
/// Seconds are those of the job: on a simulated cluster what its links take, including the dilation, so they can be added to
/// times of layers measured there. Collective over `world`. @throws InvalidArgument for impossible options.
CollectiveProfile measure_collectives(Communicator& world, Topology const& topology, MeasureOptions const& options);

}  // namespace ballast
