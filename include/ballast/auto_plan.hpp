// SPDX-License-Identifier: Apache-2.0
/// From a model to a plan in one call: discover, measure, profile, balance.
#pragma once

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/cluster/environment.hpp"
#include "ballast/cluster/measure.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/model/profile_model.hpp"
#include "ballast/plan/balance.hpp"
#include "ballast/plan/plan.hpp"

namespace ballast {

struct AutoPlanOptions {
  BalanceOptions balance;  ///< global_batch is required; optimizer follows `profile.optimizer`
  ProfileOptions profile;  ///< `samples` empty: powers of two up to the largest micro-batch that is allowed
  MeasureOptions measure{.budget_s = 5.0};
};

/// The plan with everything it was computed from.
struct AutoPlan {
  Topology topology;
  CollectiveProfile collectives;
  ModelProfile model;
  Plan plan;
};

/// Discovers the machine, measures its collectives, profiles `model` and balances; equal on all ranks. `sample` holds at
/// least the largest micro-batch. Collective over the environment's world.
/// @throws InfeasiblePlan, InvalidArgument on all ranks.
AutoPlan auto_plan(Environment& environment, Model const& model, Batch const& sample, AutoPlanOptions const& options);

/// The profile part alone. All ranks measure at the same time, because what they share (memory bandwidth, caches, cores)
/// is as busy in a step; all get what the fastest device measured, on a simulated cluster in CPU time. Collective over the
/// environment's world.
ModelProfile profile_on_ranks(Environment& environment, Model const& model, Batch const& sample,
                              ProfileOptions options);

}  // namespace ballast
