// SPDX-License-Identifier: Apache-2.0
/// The memory of the ranks of one stage, for the balancer, which changes one stage at a time.
#pragma once

#include "ballast/plan/memory_model.hpp"
#include "cost_table.hpp"

#include <vector>

namespace ballast::detail {

/// Returns the peaks of the ranks of stage `stage` of the only replica, in the order of its ranks, as `predict_memory`.
std::vector<MemoryPrediction> stage_memory(Plan const& plan, int stage, Topology const& topology, LayerTable& table);

}  // namespace ballast::detail
