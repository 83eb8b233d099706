// SPDX-License-Identifier: Apache-2.0
/// What a group would pay for each layer, as the cut wants it: planned, or as a bound that no shares can beat.
#pragma once

#include "ballast/plan/balance.hpp"
#include "ballast/plan/cut.hpp"
#include "cost_table.hpp"
#include "groupings.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ballast::detail {

/// What every part of the balancer looks at. The memory in `topology` is what plans may use.
struct SearchInput {
  ModelProfile const& profile;
  Topology const& topology;
  BalanceOptions const& options;
  LayerTable& layers;
  LinkTable& links;
};

/// One way to fill in everything but the cut and the shares.
struct Candidate {
  std::size_t grouping = 0;
  std::int64_t micro_batch = 1;  ///< samples
  std::int64_t num_micro_batches = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  double bound_s = 0.0;  ///< no plan of this candidate has a shorter step
  int tightness = 0;     ///< how much work went into the bound
};

enum class CostKind {
  planned,         ///< batch shares by speed
  quick_plan,      ///< as `planned`, without what comes after a stage: another plan, now and then a better one
  bound,           ///< the least costs over all batch shares
  quick_bound,     ///< as `bound`, without what comes after a stage: less tight, much faster to cut
  bound_of_update  ///< as `quick_bound`, with the stage's own update instead of the backwards before it
};

/// A cut over the classes of a grouping. `members[c]` names the classes of the grouping that class c of the problem
/// stands for: one each, unless there are so many that similar ones are taken together (costs of the dearest when
/// planned, of the cheapest for a bound).
struct GroupingCut {
  CutProblem problem;
  std::vector<std::vector<std::size_t>> members;
};

/// Returns the problem whose result is a step in seconds, but for messages and some waiting: with `planned` costs about
/// what to expect, with the others a time that no plan of the candidate goes below.
GroupingCut cut_problem(SearchInput const& input, Grouping const& grouping, Candidate const& candidate, CostKind kind);

/// Returns a bound of the step from sums alone: all work spread over all units, or the longest layer. Nothing if the
/// fixed bytes of all layers are more than the memory of all units.
std::optional<double> work_bound(CutProblem const& problem);

/// Returns a time that passes after the last backward of layer 0 in any plan: its update.
double least_last_update(SearchInput const& input, Grouping const& grouping);

}  // namespace ballast::detail
