// SPDX-License-Identifier: Apache-2.0
/// The actions of a stage from its shape alone, so that the memory model can count a shorter step of the same stage.
#pragma once

#include "ballast/plan/schedule.hpp"

#include <cstdint>
#include <vector>

namespace ballast::detail {

/// What the actions of a stage depend on.
struct StageShape {
  int stage = 0;
  int num_stages = 1;
  LayerRange layers;
  bool shared = false;  ///< the group has several ranks, so weights are gathered and gradients reduced
};

/// @throws InvalidArgument if there is no such replica or stage
StageShape shape_of(Plan const& plan, int replica, int stage);

/// As the public `step_actions`.
std::vector<Action> step_actions(StageShape const& shape, ScheduleKind schedule, std::int64_t num_micro_batches);

}  // namespace ballast::detail
