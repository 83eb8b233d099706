// SPDX-License-Identifier: Apache-2.0
#include "stage_table.hpp"

#include "cut_reach.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace ballast::detail {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

int num_in_flight(CutProblem const& problem, int max_stages) {
  if (problem.schedule == ScheduleKind::gpipe) return 1;
  return static_cast<int>(std::min<std::int64_t>(problem.num_micro_batches, max_stages));
}

/// The problem without memory: what it costs then is a matter of `fit`.
CutProblem without_memory(CutProblem problem) {
  for (auto& unit_class : problem.classes) {
    std::vector<std::int64_t> const none(unit_class.seconds.size(), 0);
    unit_class.fixed_bytes = unit_class.in_flight_bytes = unit_class.transient_bytes = none;
    unit_class.input_bytes = unit_class.begin_bytes = none;
    unit_class.least_in_flight_bytes.clear();
    unit_class.least_transient_bytes.clear();
  }
  return problem;
}

class TableSearch {
 public:
  TableSearch(CutProblem const& problem, FitStage const& fit)
      : problem_(without_memory(problem)),
        fit_(fit),
        space_(problem_),
        num_in_flight_(num_in_flight(problem, space_.max_stages())) {}

  CutResult run() {
    auto const num_layers = space_.num_layers();
    best_.assign(space_.num_states(), std::vector<Choice>(static_cast<std::size_t>(num_layers) + 1));
    best_[0][static_cast<std::size_t>(num_layers)].seconds = 0;
    int const least_stages = std::max(1, problem_.num_stages);
    std::size_t goal = 0;
    double goal_s = kNever;
    space_.each_state([&](std::size_t state, std::vector<int> const& used, int total) {
      if (total > space_.max_stages()) return true;
      for (int unit_class = 0; unit_class < space_.num_classes(); ++unit_class) {
        if (used[static_cast<std::size_t>(unit_class)] > 0) extend(state, unit_class, total);
      }
      if (total >= least_stages && best_[state][0].seconds < goal_s) {
        goal = state;
        goal_s = best_[state][0].seconds;
      }
      return true;
    });
    CutResult result;
    if (goal_s == kNever) return result;
    result.feasible = true;
    result.bottleneck_s = goal_s;
    for (int begin = 0; begin < num_layers;) {
      auto const& choice = best_[goal][static_cast<std::size_t>(begin)];
      result.stages.push_back({{begin, choice.end}, choice.unit_class});
      goal = space_.without(goal, choice.unit_class);
      begin = choice.end;
    }
    return result;
  }

 private:
  /// How the layers from some layer on are best run by the units of a state: the first stage, and the largest stage
  /// time.
  struct Choice {
    double seconds = kNever;
    int end = 0;
    int unit_class = 0;
  };

  void extend(std::size_t state, int unit_class, int position) {
    auto const& before = best_[space_.without(state, unit_class)];
    for (int end = 1; end <= space_.num_layers(); ++end) {
      if (before[static_cast<std::size_t>(end)].seconds == kNever) continue;
      for (int begin = end - 1; begin >= 0; --begin) {
        auto& choice = best_[state][static_cast<std::size_t>(begin)];
        double const quickest = std::max(before[static_cast<std::size_t>(end)].seconds,
                                         space_.reach(unit_class).seconds(begin, end, position, 0.0));
        if (quickest >= choice.seconds) continue;
        double const more = fitted(unit_class, {begin, end}, position);
        if (more == kNever) continue;
        double const seconds = std::max(before[static_cast<std::size_t>(end)].seconds,
                                        space_.reach(unit_class).seconds(begin, end, position, more));
        if (seconds < choice.seconds) choice = {seconds, end, unit_class};
      }
    }
  }

  double fitted(int unit_class, LayerRange layers, int position) {
    auto const [entry, is_new] =
        fitted_.try_emplace({unit_class, std::min(position, num_in_flight_), layers.begin, layers.end}, kNever);
    if (is_new) entry->second = fit_(unit_class, layers, position);
    return entry->second;
  }

  CutProblem problem_;
  FitStage const& fit_;
  UnitSpace space_;
  int num_in_flight_;
  std::vector<std::vector<Choice>> best_;  ///< by state and first layer
  std::map<std::tuple<int, int, int, int>, double> fitted_;
};

}  // namespace

std::int64_t num_fitted_stages(CutProblem const& problem) {
  auto const num_layers = std::ssize(problem.classes.front().seconds);
  std::int64_t num_units = 0;
  for (auto const& unit_class : problem.classes) num_units += unit_class.count;
  return std::ssize(problem.classes) * num_in_flight(problem, static_cast<int>(std::min(num_units, num_layers))) *
         num_layers * (num_layers + 1) / 2;
}

CutResult cut_fitted(CutProblem const& problem, FitStage const& fit) { return TableSearch(problem, fit).run(); }

}  // namespace ballast::detail
