// SPDX-License-Identifier: Apache-2.0
#include "candidate.hpp"

#include "ballast/base/error.hpp"
#include "ballast/plan/shares.hpp"
#include "batch_shares.hpp"
#include "stage_fit.hpp"
#include "stage_table.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr std::int64_t kMaxMicroBatches = 65'536;  // as the validator
constexpr double kWorthImproving = 1.05;           // times the best step so far
constexpr int kMaxTightenings = 8;
constexpr int kLargeProblem = 10'000;       // layers x ranks from which on one cut must do
constexpr double kFewPositions = 300;       // in a cut, to try all numbers of stages
constexpr std::int64_t kFewFits = 500;      // of single stages, to cut knowing all: a matter of milliseconds
constexpr std::int64_t kManyFits = 25'000;  // the same when no plan is known: half a second

}  // namespace

std::vector<std::int64_t> allowed_micro_batches(BalanceOptions const& options) {
  std::set<std::int64_t> found;
  auto const consider = [&](std::int64_t samples) {
    if (options.global_batch % samples == 0 && options.global_batch / samples <= kMaxMicroBatches)
      found.insert(samples);
  };
  for (auto const samples : options.micro_batches) consider(samples);
  if (options.micro_batches.empty()) {
    for (std::int64_t parts = 1; parts <= std::min(options.global_batch, kMaxMicroBatches); ++parts) {
      if (options.global_batch % parts == 0) consider(options.global_batch / parts);
    }
  }
  if (found.empty()) {
    throw InvalidArgument(
        fmt::format("no allowed micro-batch ({}) divides the global batch of {} into at most {} parts",
                    fmt::join(options.micro_batches, ", "), options.global_batch, kMaxMicroBatches));
  }
  return {found.begin(), found.end()};
}

CandidateSolver::CandidateSolver(SearchInput const& input)
    : input_(input), groupings_(detail::groupings(input.topology, input.options.group_size)) {}

std::vector<Candidate> CandidateSolver::candidates() {
  std::vector<Candidate> result;
  for (std::size_t grouping = 0; grouping < groupings_.size(); ++grouping) {
    if (input_.options.num_stages && *input_.options.num_stages > groupings_[grouping].num_units()) continue;
    for (auto const micro_batch : allowed_micro_batches(input_.options)) {
      for (auto const schedule : input_.options.schedules) {
        Candidate candidate{grouping, micro_batch, input_.options.global_batch / micro_batch, schedule, 0.0, 0};
        auto const bound =
            work_bound(cut_problem(input_, groupings_[grouping], candidate, CostKind::quick_bound).problem);
        if (!bound) continue;
        candidate.bound_s = *bound;
        result.push_back(candidate);
      }
    }
  }
  return result;
}

bool CandidateSolver::tighten(Candidate& candidate) {
  ++candidate.tightness;
  auto const bound = bound_s(candidate, candidate.tightness == kQuick ? CostKind::quick_bound : CostKind::bound);
  if (!bound) return false;
  candidate.bound_s = std::max(candidate.bound_s, *bound);
  if (candidate.tightness == kQuick) {
    candidate.bound_s = std::max(candidate.bound_s, bound_s(candidate, CostKind::bound_of_update).value_or(0.0));
  }
  return true;
}

std::optional<double> CandidateSolver::bound_s(Candidate const& candidate, CostKind kind) {
  auto const& grouping = groupings_[candidate.grouping];
  auto const result = cut(cut_problem(input_, grouping, candidate, kind).problem);
  if (!result.feasible) return {};
  // All but one of the bounds end with the last backward of layer 0, and its update comes after that.
  return result.bottleneck_s + (kind == CostKind::bound_of_update ? 0.0 : least_last_update(input_, grouping));
}

std::optional<Solution> CandidateSolver::solve(Candidate const& candidate, double best_s, bool thorough) {
  std::optional<Solution> best;
  auto const consider = [&](std::optional<Plan> const& plan) {
    if (!plan) return;
    auto simulation = play(*plan);
    if (!best || simulation.step_s < best->simulation.step_s) best = Solution{candidate, *plan, std::move(simulation)};
  };
  int const num_stages = input_.options.num_stages.value_or(0);
  consider(plan_from_cut(candidate, CostKind::planned, 0, num_stages));
  if (input_.layers.num_layers() * input_.topology.num_ranks() < kLargeProblem) {
    consider(plan_from_cut(candidate, CostKind::quick_plan, 0, num_stages));
  }
  consider(plan_from_even_split(candidate, false));
  consider(plan_from_even_split(candidate, true));
  consider(plan_from_fitted_stages(candidate, !best && thorough ? kManyFits : kFewFits));
  if (!best || best->simulation.step_s > kWorthImproving * best_s) return best;
  improve(*best);
  try_other_depths(*best);
  return best;
}

/// The cut does not know what messages cost, nor all of the waiting, so other numbers of stages may be better. All of
/// them are tried in small problems, one and one less in others.
void CandidateSolver::try_other_depths(Solution& best) {
  if (input_.options.num_stages) return;
  auto const& candidate = best.candidate;
  auto const consider = [&](std::optional<Plan> plan) {
    if (!plan) return;
    Solution other{candidate, std::move(*plan), {}};
    other.simulation = play(other.plan);
    if (other.simulation.step_s <= kWorthImproving * best.simulation.step_s) improve(other);
    if (other.simulation.step_s < best.simulation.step_s) best = std::move(other);
  };
  auto const depth = static_cast<int>(stages_of(best.plan).size());
  auto const planned = cut_problem(input_, groupings_[candidate.grouping], candidate, CostKind::planned);
  double num_positions = input_.layers.num_layers();
  for (auto const& unit_class : planned.problem.classes) num_positions *= unit_class.count + 1;
  if (num_positions > kFewPositions) {
    if (depth > 1) consider(plan_from_cut(candidate, CostKind::quick_plan, 1, 0));
    if (depth > 2) consider(plan_from_cut(candidate, CostKind::planned, depth - 1, 0));
    return;
  }
  int const deepest = std::min(groupings_[candidate.grouping].num_units(), input_.layers.num_layers());
  for (int other = 1; other <= deepest; ++other) {
    if (other != depth) consider(plan_from_cut(candidate, CostKind::planned, 0, other));
  }
}

Plan CandidateSolver::empty_plan(Candidate const& candidate) const {
  Plan plan;
  plan.dtype = input_.profile.dtype;
  plan.optimizer = input_.options.optimizer;
  plan.global_batch = input_.options.global_batch;
  plan.num_micro_batches = candidate.num_micro_batches;
  plan.schedule = candidate.schedule;
  plan.replicas.resize(1);
  return plan;
}

Stage CandidateSolver::stage_on(std::vector<int> const& ranks, LayerRange layers, std::int64_t micro_batch) {
  std::vector<Device> devices;
  devices.reserve(ranks.size());
  for (int const rank : ranks) devices.push_back(input_.topology.devices[static_cast<std::size_t>(rank)]);
  Stage stage;
  stage.layers = layers;
  stage.ranks = ranks;
  stage.batch_share = shares_by_speed(devices, layers, micro_batch, input_.layers);
  stage.shard_share.assign(ranks.size(), 1);
  return stage;
}

/// Puts the stages of a cut on units: those of a class in the order of ranks, so that neighbours are near.
Plan CandidateSolver::assembled(Candidate const& candidate, GroupingCut const& planned, CutResult const& result) {
  auto plan = empty_plan(candidate);
  std::vector<std::vector<std::vector<int>>> units;  // still unused, by class of the cut, the next one last
  for (auto const& members : planned.members) {
    units.emplace_back();
    for (auto const member : members) {
      auto const& more = groupings_[candidate.grouping].classes[member].units;
      units.back().insert(units.back().end(), more.begin(), more.end());
    }
    std::sort(units.back().rbegin(), units.back().rend());
  }
  for (auto const& stage : result.stages) {
    auto& unused = units[static_cast<std::size_t>(stage.unit_class)];
    stages_of(plan).push_back(stage_on(unused.back(), stage.layers, candidate.micro_batch));
    unused.pop_back();
  }
  return plan;
}

/// The cut's memory is near to the truth, but not the truth: where the exact count finds a stage too large, its class
/// gets that much less memory and the cut is made again.
std::optional<Plan> CandidateSolver::plan_from_cut(Candidate const& candidate, CostKind kind, int max_stages,
                                                   int num_stages) {
  auto planned = cut_problem(input_, groupings_[candidate.grouping], candidate, kind);
  planned.problem.max_stages = max_stages;
  planned.problem.num_stages = num_stages;
  for (int attempt = 0; attempt < kMaxTightenings; ++attempt) {
    auto const result = cut(planned.problem);
    if (!result.feasible) return {};
    auto plan = assembled(candidate, planned, result);
    bool fits = true;
    for (std::size_t stage = 0; stage < result.stages.size(); ++stage) {
      auto const missing = fit_stage(plan, static_cast<int>(stage), input_);
      if (missing == 0) continue;
      fits = false;
      auto& memory = planned.problem.classes[static_cast<std::size_t>(result.stages[stage].unit_class)].memory_bytes;
      memory = std::max<std::int64_t>(0, memory - std::max(missing, kAllocationQuantum));
    }
    if (fits) return plan;
  }
  return {};
}

/// Fits every stage that could be, and cuts knowing that. So what fits is found, however tight the memory, as long as
/// the problem is small.
std::optional<Plan> CandidateSolver::plan_from_fitted_stages(Candidate const& candidate, std::int64_t most_fits) {
  auto const planned = cut_problem(input_, groupings_[candidate.grouping], candidate, CostKind::planned);
  auto const num_fits = num_fitted_stages(planned.problem);
  if (num_fits > std::min(most_fits, fits_left_)) return {};
  fits_left_ -= num_fits;
  auto const fit = [&](int unit_class, LayerRange layers, int position) {
    // Only its own layers, its group and its distance from the end matter for a stage, so the others are made up.
    auto const& members = planned.members[static_cast<std::size_t>(unit_class)];
    auto plan = empty_plan(candidate);
    int const before = layers.begin > 0 ? 1 : 0;
    int const num_stages = before + position;
    stages_of(plan).resize(static_cast<std::size_t>(num_stages));
    auto& stage = stages_of(plan)[static_cast<std::size_t>(before)];
    stage =
        stage_on(groupings_[candidate.grouping].classes[members.front()].units.front(), layers, candidate.micro_batch);
    double const asked_s = computing_seconds(stage, input_);
    if (fit_stage(plan, before, input_) != 0) return std::numeric_limits<double>::infinity();
    return std::max(0.0, computing_seconds(stage, input_) - asked_s);
  };
  auto const result = cut_fitted(planned.problem, fit);
  if (!result.feasible) return {};
  auto plan = assembled(candidate, planned, result);
  for (std::size_t stage = 0; stage < result.stages.size(); ++stage) {
    if (fit_stage(plan, static_cast<int>(stage), input_) != 0) return {};
  }
  return plan;
}

/// As many layers for each group, in the order of ranks. `by_hand`: also equal shares and no recompute, as people write
/// it down; so the balancer is never slower than that.
std::optional<Plan> CandidateSolver::plan_from_even_split(Candidate const& candidate, bool by_hand) {
  std::vector<std::vector<int>> units;
  for (auto const& unit_class : groupings_[candidate.grouping].classes) {
    units.insert(units.end(), unit_class.units.begin(), unit_class.units.end());
  }
  if (by_hand) {
    for (auto& ranks : units) std::sort(ranks.begin(), ranks.end());
  }
  std::sort(units.begin(), units.end());
  int const num_layers = input_.layers.num_layers();
  int const num_stages = input_.options.num_stages.value_or(std::min(static_cast<int>(units.size()), num_layers));
  auto plan = empty_plan(candidate);
  for (int stage = 0; stage < num_stages; ++stage) {
    auto const& ranks = units[static_cast<std::size_t>(stage)];
    LayerRange const layers = {stage * num_layers / num_stages, (stage + 1) * num_layers / num_stages};
    stages_of(plan).push_back(stage_on(ranks, layers, candidate.micro_batch));
    auto& shares = stages_of(plan).back().batch_share;
    if (by_hand) shares = apportion(candidate.micro_batch, std::vector<double>(ranks.size(), 1.0));
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    if (by_hand ? !stage_fits(plan, stage, input_) : fit_stage(plan, stage, input_) != 0) return {};
  }
  return plan;
}

}  // namespace ballast::detail
