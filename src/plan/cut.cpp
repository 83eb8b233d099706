// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/cut.hpp"

#include "cut_reach.hpp"

#include <algorithm>
#include <limits>

namespace ballast {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// R[x], x being how many units of each class are used: the first layer of the longest tail of the chain that these
/// units can run, each within the threshold and its memory. Longer is better, whatever is used next: docs/design.md.
class ReachSearch {
 public:
  explicit ReachSearch(CutProblem const& problem) : space_(problem), reached_(space_.num_states()) {}

  bool probe(double threshold, bool stop_early) {
    threshold_ = threshold;
    int const num_layers = space_.num_layers();  // as a value of R: not reachable
    blocked_ = kNever;
    goal_used_ = std::numeric_limits<int>::max();
    reached_[0] = num_layers;
    space_.each_state([&](std::size_t state, std::vector<int> const& used, int total) {
      int best = num_layers;
      if (total <= space_.max_stages()) {
        for (int unit_class = 0; unit_class < space_.num_classes(); ++unit_class) {
          if (used[static_cast<std::size_t>(unit_class)] == 0) continue;
          int const end = reached_[space_.without(state, unit_class)];
          if (end == 0 || (end == num_layers && total > 1)) continue;  // done before, or not reachable
          int const begin = space_.reach(unit_class).begin(end, total, threshold_, blocked_);
          if (begin < end) best = std::min(best, begin);
        }
      }
      reached_[state] = best;
      if (best == 0 && total < goal_used_) {
        goal_ = state;
        goal_used_ = total;
      }
      return !(stop_early && best == 0);
    });
    return goal_used_ < std::numeric_limits<int>::max();
  }

  double blocked() const noexcept { return blocked_; }

  /// Follows R from the goal back to the end of the chain. Among equals the class of the stage before is taken, since
  /// its units are likely near.
  CutResult result() {
    CutResult result;
    result.feasible = true;
    std::size_t state = goal_;
    int previous = -1;
    for (int used = goal_used_; used > 0; --used) {
      int chosen = -1;
      int const begin = reached_[state];
      for (int unit_class = 0; unit_class < space_.num_classes() && (chosen < 0 || chosen != previous); ++unit_class) {
        if (space_.used(state, unit_class) == 0 || (chosen >= 0 && unit_class != previous)) continue;
        int const end = reached_[space_.without(state, unit_class)];
        if (end <= begin || (end == space_.num_layers() && used > 1)) continue;
        double ignored = kNever;
        if (space_.reach(unit_class).begin(end, used, threshold_, ignored) == begin) chosen = unit_class;
      }
      state = space_.without(state, chosen);
      int const end = reached_[state];
      result.stages.push_back({{begin, end}, chosen});
      result.bottleneck_s = std::max(result.bottleneck_s, space_.reach(chosen).seconds(begin, end, used));
      previous = chosen;
    }
    return result;
  }

 private:
  detail::UnitSpace space_;
  std::vector<int> reached_;  ///< R, by state
  double threshold_ = 0.0;
  std::size_t goal_ = 0;
  int goal_used_ = 0;
  double blocked_ = 0.0;
};

}  // namespace

CutResult cut(CutProblem const& problem) {
  // Reach is best only if a stage is never cheaper for coming later from the end, with the same layers on the same
  // unit.
  bool const drains = problem.objective == CutObjective::step && !problem.end_seconds.empty();
  bool const saves_in_flight =
      std::any_of(problem.classes.begin(), problem.classes.end(), [](CutClass const& c) { return c.per_in_flight; });
  bool const position_matters = problem.schedule == ScheduleKind::one_f_one_b && (drains || saves_in_flight);
  if (problem.num_stages > 0 || position_matters) return detail::cut_by_positions(problem);
  ReachSearch search(problem);
  return detail::least_bottleneck(search, kNever);
}

}  // namespace ballast
