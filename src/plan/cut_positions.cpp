// SPDX-License-Identifier: Apache-2.0
/// The cut when reaching furthest is not best. With a given number of stages, a unit that can run none of the layers
/// that are left could have run some of those that were taken; and a stage that comes later from the end may be
/// cheaper. So all positions that units can reach are kept, not the furthest.
#include "cut_reach.hpp"

#include <algorithm>
#include <limits>

namespace ballast::detail {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class PositionSearch {
 public:
  explicit PositionSearch(CutProblem const& problem)
      : space_(problem),
        least_stages_(std::max(1, problem.num_stages)),
        width_(static_cast<std::size_t>(space_.num_layers()) + 1),
        reachable_(space_.num_states() * width_) {}

  bool probe(double threshold, bool stop_early) {
    threshold_ = threshold;
    std::fill(reachable_.begin(), reachable_.end(), 0);
    blocked_ = kNever;
    goal_ = 0;
    goal_used_ = std::numeric_limits<int>::max();
    at(0, space_.num_layers()) = 1;
    space_.each_state([&](std::size_t state, std::vector<int> const& used, int total) {
      if (total > space_.max_stages()) return true;
      for (int unit_class = 0; unit_class < space_.num_classes(); ++unit_class) {
        if (used[static_cast<std::size_t>(unit_class)] > 0) extend(state, unit_class, total);
      }
      if (total >= least_stages_ && total < goal_used_ && at(state, 0) != 0) {
        goal_ = state;
        goal_used_ = total;
      }
      return !(stop_early && goal_ == state);
    });
    return goal_used_ < std::numeric_limits<int>::max();
  }

  double blocked() const noexcept { return blocked_; }

  CutResult result() {
    CutResult result;
    result.feasible = true;
    std::size_t state = goal_;
    int begin = 0;
    for (int used = goal_used_; used > 0; --used) {
      auto const stage = stage_from(state, begin, used);
      result.bottleneck_s =
          std::max(result.bottleneck_s, space_.reach(stage.unit_class).seconds(begin, stage.layers.end, used));
      result.stages.push_back(stage);
      state = space_.without(state, stage.unit_class);
      begin = stage.layers.end;
    }
    return result;
  }

 private:
  char& at(std::size_t state, int layer) { return reachable_[state * width_ + static_cast<std::size_t>(layer)]; }

  /// Marks what one more stage reaches. Begins move right with ends, so every position is looked at about once.
  void extend(std::size_t state, int unit_class, int position) {
    auto const& reach = space_.reach(unit_class);
    auto const before = space_.without(state, unit_class);
    int marked = 0;
    for (int end = 1; end <= space_.num_layers(); ++end) {
      if (at(before, end) == 0) continue;
      int const first = reach.begin(end, position, threshold_, blocked_);
      for (int begin = std::max(first, reach.is_monotone() ? marked : 0); begin < end; ++begin) {
        if (reach.is_monotone() || reach.allows(begin, end, position, threshold_)) at(state, begin) = 1;
      }
      marked = end;
    }
  }

  /// A stage that begins with layer `begin`, the longest there is, and from whose end one unit fewer gets to the
  /// chain's end.
  CutStage stage_from(std::size_t state, int begin, int used) {
    for (int end = space_.num_layers(); end > begin; --end) {
      for (int unit_class = 0; unit_class < space_.num_classes(); ++unit_class) {
        if (space_.used(state, unit_class) == 0 || at(space_.without(state, unit_class), end) == 0) continue;
        if (space_.reach(unit_class).allows(begin, end, used, threshold_)) return {{begin, end}, unit_class};
      }
    }
    return {};  // not reached: the goal was marked through one of these
  }

  UnitSpace space_;
  int least_stages_;
  std::size_t width_;
  std::vector<char> reachable_;  ///< by state and layer: [layer, n) can be run by exactly these units
  double threshold_ = 0.0;
  std::size_t goal_ = 0;
  int goal_used_ = 0;
  double blocked_ = 0.0;
};

}  // namespace

CutResult cut_by_positions(CutProblem const& problem) {
  PositionSearch search(problem);
  return least_bottleneck(search, kNever);
}

}  // namespace ballast::detail
