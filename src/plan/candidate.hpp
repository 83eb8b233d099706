// SPDX-License-Identifier: Apache-2.0
/// From one candidate to its best plan that fits.
#pragma once

#include "ballast/plan/simulate.hpp"
#include "unit_costs.hpp"

#include <optional>
#include <vector>

namespace ballast::detail {

/// A plan that fits, with its simulated step (no timeline).
struct Solution {
  Candidate candidate;
  Plan plan;
  Simulation simulation;
};

inline std::vector<Stage>& stages_of(Plan& plan) { return plan.replicas.front().stages; }

/// Turns candidates into plans.
class CandidateSolver {
 public:
  explicit CandidateSolver(SearchInput const& input);

  /// Returns all candidates within the options with first, cheap bounds, but those whose layers cannot fit all
  /// together.
  std::vector<Candidate> candidates();

  /// Tightens the bound of the candidate by one step of `kTightest`; false if no plan of it can fit.
  bool tighten(Candidate& candidate);
  static constexpr int kQuick = 1;  ///< whether the candidate can fit is known from here on
  static constexpr int kTightest = 2;

  /// Returns the fastest plan found for the candidate among the exact cuts and the even split, changed where the
  /// simulation gains by it; nothing if none fits. `best_s` is the fastest step known: plans far from it are not
  /// improved. `thorough`: when none fits so far, looks at every stage there could be, which may take half a second.
  std::optional<Solution> solve(Candidate const& candidate, double best_s, bool thorough);

  std::int64_t num_simulated() const noexcept { return num_simulated_; }

 private:
  std::optional<double> bound_s(Candidate const& candidate, CostKind kind);
  std::optional<Plan> plan_from_cut(Candidate const& candidate, CostKind kind, int max_stages, int num_stages);
  std::optional<Plan> plan_from_fitted_stages(Candidate const& candidate, std::int64_t most_fits);
  std::optional<Plan> plan_from_even_split(Candidate const& candidate, bool by_hand);
  void try_other_depths(Solution& best);
  void improve(Solution& solution);
  bool move_boundaries(Solution& solution);
  bool exchange_units(Solution& solution, std::vector<std::vector<int>> const& units);
  bool accept(Solution& solution, Plan plan, std::vector<int> const& changed);
  Plan empty_plan(Candidate const& candidate) const;
  Plan assembled(Candidate const& candidate, GroupingCut const& planned, CutResult const& result);
  Stage stage_on(std::vector<int> const& ranks, LayerRange layers, std::int64_t micro_batch);
  Simulation play(Plan const& plan);

  SearchInput const& input_;
  std::vector<Grouping> groupings_;
  std::int64_t num_simulated_ = 0;
  std::int64_t actions_left_ = 20'000'000;  ///< of all simulations that only try to improve; about a second
  std::int64_t fits_left_ = 50'000;         ///< of single stages, for cuts that know which fit
};

/// Returns the samples per micro-batch that the options allow for their global batch, ascending. @throws
/// InvalidArgument if there are none.
std::vector<std::int64_t> allowed_micro_batches(BalanceOptions const& options);

}  // namespace ballast::detail
