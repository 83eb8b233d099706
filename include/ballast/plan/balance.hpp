// SPDX-License-Identifier: Apache-2.0
/// The balancer: from topology, profiles and options to the best plan that fits, with its reasons.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/plan/plan.hpp"

namespace ballast {

struct BalanceOptions {
  std::int64_t global_batch = 0;
  std::vector<std::int64_t> micro_batches;       ///< allowed samples per micro-batch; empty: all divisors of global_batch
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::vector<ScheduleKind> schedules = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe};
  bool allow_recompute = true;
  double reserve = 0.0;                          ///< share of each device's memory to leave free, [0, 1)
  std::optional<int> num_stages;                 ///< fixed by the user
  std::optional<std::int64_t> group_size;        ///< ranks per stage, fixed by the user
  friend bool operator==(BalanceOptions const&, BalanceOptions const&) = default;
};

/// Returns the plan with the least simulated step time among those that fit, with predictions, lower bound, gap and
/// reasons. Pure: the same inputs give the same bytes on every rank.
///
/// Groups are nodes, equal parts of nodes, neighbouring nodes joined, single ranks, or the whole job; ranks stay idle where
/// that is faster. Inside a group batch shares follow speed; shards are equal while memory is ample, else they follow free
/// memory; layers are recomputed where memory asks for it. Candidates (grouping, micro-batch, schedule) are cut exactly, the
/// one with the least bound first; the simulator and the memory model have the last word: docs/design.md, "The balancer".
/// @throws InfeasiblePlan naming the tightest stage or rank and the missing bytes; InvalidArgument for options or profile
/// values that make no sense (batch that no allowed micro-batch divides, NaN times, ...).
Plan balance(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
             BalanceOptions const& options);

/// Fills `plan.predictions` (memory, times, bubble, what limits each stage) for any structurally valid plan; keeps bound,
/// gap, candidates and reasons.
void predict(Plan& plan, ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives);

}  // namespace ballast
