// SPDX-License-Identifier: Apache-2.0
/// Makes a stage fit into the memory of its ranks: shard shares, recompute and batch shares, counted exactly.
#pragma once

#include "ballast/plan/plan.hpp"
#include "unit_costs.hpp"

#include <cstdint>

namespace ballast::detail {

/// Chooses shard shares, recomputed layers and, if nothing else helps, other batch shares for stage `stage` of `plan`,
/// which has its layers, its ranks and batch shares by speed. Equal shards and no recompute stay where memory is ample.
/// Returns the bytes missing over all ranks of the group; 0: the stage fits.
std::int64_t fit_stage(Plan& plan, int stage, SearchInput const& input);

/// Returns whether the stage fits as it is.
bool stage_fits(Plan const& plan, int stage, SearchInput const& input);

/// Returns the seconds that a micro-batch computes on the slowest rank, forward and backward, layer by layer.
double computing_seconds(Stage const& stage, SearchInput const& input);

}  // namespace ballast::detail
