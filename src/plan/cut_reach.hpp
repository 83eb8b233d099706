// SPDX-License-Identifier: Apache-2.0
/// How far to the left a stage can reach: the inner question of the cut.
#pragma once

#include "ballast/plan/cut.hpp"
#include "stage_bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ballast::detail {

/// Returns the number of layers. @throws InvalidArgument for NaN, negative or wrong-sized input.
int check(CutProblem const& problem);

/// For one class: the smallest first layer of a stage that ends at a given layer.
class StageReach {
 public:
  /// `problem` and `unit_class` outlive the object.
  StageReach(CutProblem const& problem, CutClass const& unit_class, int max_stages);

  /// Returns the smallest i such that the stage [i, end), the `position`-th from the end of the pipeline, takes at most
  /// `threshold` and is within the memory; `end` if there is none. Lowers `blocked` to the stage time that the
  /// threshold refused, if any.
  int begin(int end, int position, double threshold, double& blocked) const {
    return is_monotone_ ? search(end, position, threshold, blocked) : scan(end, position, threshold, blocked);
  }

  /// Returns whether the stage [begin, end) is within the threshold and the memory.
  bool allows(int begin, int end, int position, double threshold) const;

  bool is_monotone() const noexcept { return is_monotone_; }

  /// Returns the time of the stage [begin, end) by the problem's objective, if a micro-batch takes `more` than its
  /// layers.
  double seconds(int begin, int end, int position, double more = 0.0) const {
    auto const at = slot(position);
    double sum = seconds_[static_cast<std::size_t>(end)] - seconds_[static_cast<std::size_t>(begin)] + more;
    if (is_elastic_) {
      auto const missing = bytes_.bytes(begin, end, in_flight_[at]) - memory_bytes_;
      if (missing > 0) sum += seconds_per_byte_[at] * static_cast<double>(missing);
    }
    if (before_.empty()) return sum;
    auto const& [own, after] = weights_[at];
    return before_[static_cast<std::size_t>(begin)] +
           std::max(num_micro_batches_ * sum, own * sum + after * after_[static_cast<std::size_t>(end)]);
  }

 private:
  /// How often a stage's own time and the time after it count while the pipeline fills and drains.
  struct Weights {
    double own = 0.0;
    double after = 0.0;
  };

  /// Tables are kept by position from the end, but not beyond the micro-batches, from where on nothing changes.
  std::size_t slot(int position) const { return static_cast<std::size_t>(std::min(position, num_slots_) - 1); }

  int search(int end, int position, double threshold, double& blocked) const;
  int scan(int end, int position, double threshold, double& blocked) const;

  std::int64_t memory_bytes_;
  double num_micro_batches_;
  bool is_elastic_;          ///< missing memory costs time, until the least bytes do not fit either
  bool is_monotone_ = true;  ///< a stage that begins further left never needs less memory
  int num_slots_ = 1;
  StageBytes bytes_;
  StageBytes least_bytes_;                      ///< the same as `bytes_` unless elastic
  std::vector<double> seconds_;                 ///< prefix sums
  std::vector<double> before_;                  ///< by begin; empty: only the sum counts
  std::vector<double> after_;                   ///< by end
  std::vector<Weights> weights_;                ///< by slot
  std::vector<std::int64_t> in_flight_;         ///< by slot
  std::vector<double> seconds_per_byte_;        ///< by slot
  std::vector<std::vector<int>> memory_begin_;  ///< by slot and end: smallest begin within the memory, if monotone
};

/// The states of the search: how many units of each class are used, numbered in mixed radix, so that a state comes
/// after all states with fewer units.
class UnitSpace {
 public:
  /// `problem` outlives the object. @throws InvalidArgument as `cut`.
  explicit UnitSpace(CutProblem const& problem);

  int num_layers() const noexcept { return num_layers_; }
  int max_stages() const noexcept { return max_stages_; }
  std::size_t num_states() const noexcept { return num_states_; }
  int num_classes() const noexcept { return static_cast<int>(reach_.size()); }
  StageReach const& reach(int unit_class) const { return reach_[static_cast<std::size_t>(unit_class)]; }

  int used(std::size_t state, int unit_class) const;
  std::size_t without(std::size_t state, int unit_class) const {
    return state - strides_[static_cast<std::size_t>(unit_class)];
  }

  /// Calls `visit(state, used, total)` for every state but the empty one, in order; `used` by class. Ends when it
  /// returns false.
  template <class Visit>
  void each_state(Visit const& visit) const {
    std::vector<int> used(counts_.size(), 0);
    int total = 0;
    for (std::size_t state = 1; state < num_states_; ++state) {
      std::size_t digit = 0;
      for (; used[digit] == counts_[digit]; ++digit) {
        total -= used[digit];
        used[digit] = 0;
      }
      ++used[digit];
      ++total;
      if (!visit(state, used, total)) return;
    }
  }

 private:
  int num_layers_;
  int max_stages_ = 0;
  std::vector<int> counts_;  ///< usable units per class
  std::vector<std::size_t> strides_;
  std::size_t num_states_ = 1;
  std::vector<StageReach> reach_;  ///< by class
};

/// Returns what `cut` returns, by a search that keeps all positions; slower, but right for every problem.
CutResult cut_by_positions(CutProblem const& problem);

/// Returns the least bottleneck by bisection. `search.probe(T, stop_early)` says whether T can be reached, and if not,
/// sets `search.blocked()` to the least stage time above T that it missed: between the two nothing changes.
/// `search.result()` is the cut of the last successful probe. So both ends move to values that occur, and meet exactly.
template <class Search>
CutResult least_bottleneck(Search& search, double infinity) {
  if (!search.probe(infinity, false)) return {};
  auto result = search.result();
  double lower = 0;
  while (lower < result.bottleneck_s) {
    double threshold = lower + (result.bottleneck_s - lower) / 2;
    if (!(threshold < result.bottleneck_s)) threshold = lower;
    if (search.probe(threshold, true)) {
      result = search.result();
    } else {
      lower = search.blocked();
    }
  }
  // Once more, for the fewest stages. Where sums with begin and end seconds are equal but for rounding, it may just
  // fail.
  return search.probe(result.bottleneck_s, false) ? search.result() : result;
}

}  // namespace ballast::detail
