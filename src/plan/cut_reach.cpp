// SPDX-License-Identifier: Apache-2.0
#include "cut_reach.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1}
                                   << 60;  // of all layers and micro-batches in flight; four such terms fit
constexpr std::int64_t kMaxStates = 4'000'000;

template <class Value>
void check_vector(std::vector<Value> const& values, std::size_t num_layers, Value maximum, char const* name,
                  int unit_class) {
  if (values.size() != num_layers) {
    throw InvalidArgument(
        fmt::format("cut: class {} has {} {} for {} layers", unit_class, values.size(), name, num_layers));
  }
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    if (values[layer] >= 0 && values[layer] <= maximum) continue;  // false for NaN
    throw InvalidArgument(fmt::format("cut: class {} has {} = {} at layer {}, expected 0 to {}", unit_class, name,
                                      values[layer], layer, maximum));
  }
}

/// Between two layers `fill` changes by no more than the seconds of the first (begin_seconds) or the second
/// (end_seconds).
void check_fill(CutProblem const& problem, std::vector<double> const& fill, std::size_t num_layers, char const* name,
                std::size_t side) {
  if (fill.empty()) return;
  check_vector(fill, num_layers, std::numeric_limits<double>::max(), name, -1);
  for (auto const& unit_class : problem.classes) {
    for (std::size_t layer = 0; layer + 1 < num_layers; ++layer) {
      double const change = side == 0 ? fill[layer + 1] - fill[layer] : fill[layer] - fill[layer + 1];
      double const seconds = unit_class.seconds[layer + side];
      if (change <= seconds + 1e-9 * (seconds + fill[layer])) continue;  // but for rounding
      throw InvalidArgument(
          fmt::format("cut: {} change by {} at layer {}, which takes {}", name, change, layer + side, seconds));
    }
  }
}

}  // namespace

int check(CutProblem const& problem) {
  if (problem.num_micro_batches < 1) {
    throw InvalidArgument(fmt::format("cut: {} micro-batches, expected at least 1", problem.num_micro_batches));
  }
  if (problem.max_stages < 0 || problem.num_stages < 0) {
    throw InvalidArgument(fmt::format("cut: max_stages {} and num_stages {} must not be negative", problem.max_stages,
                                      problem.num_stages));
  }
  if (problem.classes.empty() || problem.classes.front().seconds.empty())
    throw InvalidArgument("cut: no classes or no layers");
  auto const num_layers = problem.classes.front().seconds.size();
  auto const max_in_flight =
      problem.schedule == ScheduleKind::gpipe
          ? problem.num_micro_batches
          : std::min<std::int64_t>(problem.num_micro_batches, static_cast<std::int64_t>(num_layers));
  auto const max_bytes = kMaxBytes / static_cast<std::int64_t>(num_layers);
  for (std::size_t index = 0; index < problem.classes.size(); ++index) {
    auto const& unit_class = problem.classes[index];
    auto const name = static_cast<int>(index);
    if (unit_class.count < 0 || unit_class.memory_bytes < 0) {
      throw InvalidArgument(
          fmt::format("cut: class {} has {} units of {} bytes", name, unit_class.count, unit_class.memory_bytes));
    }
    check_vector(unit_class.seconds, num_layers, std::numeric_limits<double>::max(), "seconds", name);
    check_vector(unit_class.fixed_bytes, num_layers, max_bytes, "fixed_bytes", name);
    check_vector(unit_class.in_flight_bytes, num_layers, max_bytes / max_in_flight, "in_flight_bytes", name);
    check_vector(unit_class.transient_bytes, num_layers, max_bytes, "transient_bytes", name);
    check_vector(unit_class.input_bytes, num_layers, max_bytes / max_in_flight, "input_bytes", name);
    check_vector(unit_class.begin_bytes, num_layers, max_bytes, "begin_bytes", name);
    if (unit_class.least_in_flight_bytes.empty() && unit_class.least_transient_bytes.empty()) continue;
    check_vector(unit_class.least_in_flight_bytes, num_layers, max_bytes / max_in_flight, "least_in_flight_bytes",
                 name);
    check_vector(unit_class.least_transient_bytes, num_layers, max_bytes, "least_transient_bytes", name);
    if (!(unit_class.seconds_per_byte >= 0 && unit_class.seconds_per_byte <= std::numeric_limits<double>::max())) {
      throw InvalidArgument(fmt::format("cut: class {} has seconds_per_byte = {}", name, unit_class.seconds_per_byte));
    }
  }
  check_fill(problem, problem.begin_seconds, num_layers, "begin_seconds", 0);
  check_fill(problem, problem.end_seconds, num_layers, "end_seconds", 1);
  return static_cast<int>(num_layers);
}

StageReach::StageReach(CutProblem const& problem, CutClass const& unit_class, int max_stages)
    : memory_bytes_(unit_class.memory_bytes),
      num_micro_batches_(static_cast<double>(problem.num_micro_batches)),
      is_elastic_(!unit_class.least_in_flight_bytes.empty()),
      bytes_(unit_class, false),
      least_bytes_(unit_class, is_elastic_),
      seconds_(1, 0.0) {
  for (double const seconds : unit_class.seconds) seconds_.push_back(seconds_.back() + seconds);
  auto const num_ends = seconds_.size();
  auto const m = problem.num_micro_batches;
  bool const is_gpipe = problem.schedule == ScheduleKind::gpipe;
  num_slots_ = is_gpipe ? 1 : static_cast<int>(std::min<std::int64_t>(m, std::max(1, max_stages)));
  for (int position = 1; position <= num_slots_; ++position) {
    in_flight_.push_back(is_gpipe ? m : position);
    seconds_per_byte_.push_back(unit_class.seconds_per_byte /
                                (unit_class.per_in_flight ? static_cast<double>(in_flight_.back()) : 1.0));
  }

  if (problem.objective == CutObjective::step) {
    before_ = problem.begin_seconds;
    before_.resize(num_ends, 0.0);
    after_.assign(1, 0.0);
    after_.insert(after_.end(), problem.end_seconds.begin(), problem.end_seconds.end());
    after_.resize(num_ends, 0.0);
    for (int position = 1; position <= num_slots_; ++position) {
      if (is_gpipe) {
        weights_.push_back({num_micro_batches_, 1.0});
      } else if (position < m) {
        weights_.push_back({num_micro_batches_ - position + 1, 2.0});
      } else {
        weights_.push_back({(num_micro_batches_ + 1) / 2, 1.0});
      }
    }
  }
  // Linear in the in-flight count, so the two ends speak for all between.
  for (auto const in_flight : {in_flight_.front(), in_flight_.back()}) {
    is_monotone_ = is_monotone_ && bytes_.grow(in_flight) && least_bytes_.grow(in_flight);
  }
  if (!is_monotone_) return;
  for (auto const in_flight : in_flight_)
    memory_begin_.push_back(least_bytes_.smallest_begins(memory_bytes_, in_flight));
}

bool StageReach::allows(int begin, int end, int position, double threshold) const {
  return least_bytes_.bytes(begin, end, in_flight_[slot(position)]) <= memory_bytes_ &&
         seconds(begin, end, position) <= threshold;
}

/// Time and memory grow to the left, so bisection finds the furthest begin.
int StageReach::search(int end, int position, double threshold, double& blocked) const {
  int const by_memory = memory_begin_[slot(position)][static_cast<std::size_t>(end)];
  if (by_memory >= end || seconds(by_memory, end, position) <= threshold) return by_memory;
  int refused = by_memory;
  int allowed = end;
  while (allowed - refused > 1) {
    int const middle = refused + (allowed - refused) / 2;
    (seconds(middle, end, position) > threshold ? refused : allowed) = middle;
  }
  blocked = std::min(blocked, seconds(refused, end, position));
  return allowed;
}

/// The slow way, when a stage that begins further left may need less memory: looks at every begin.
int StageReach::scan(int end, int position, double threshold, double& blocked) const {
  int best = end;
  double refused = std::numeric_limits<double>::infinity();  // left of the best
  for (int begin = end - 1; begin >= 0; --begin) {
    if (least_bytes_.bytes(begin, end, in_flight_[slot(position)]) > memory_bytes_) continue;
    double const time = seconds(begin, end, position);
    if (time <= threshold) {
      best = begin;
      refused = std::numeric_limits<double>::infinity();
    } else {
      refused = std::min(refused, time);
    }
  }
  blocked = std::min(blocked, refused);
  return best;
}

UnitSpace::UnitSpace(CutProblem const& problem) : num_layers_(check(problem)) {
  std::int64_t num_units = 0;
  for (auto const& unit_class : problem.classes) {
    int const count = std::min(unit_class.count, num_layers_);  // a stage has at least one layer
    counts_.push_back(count);
    strides_.push_back(num_states_);
    num_states_ *= static_cast<std::size_t>(count) + 1;
    num_units += count;
    if (num_states_ > kMaxStates) {
      throw InvalidArgument(
          fmt::format("cut: more than {} states; fewer or larger classes of units are needed", kMaxStates));
    }
  }
  max_stages_ = static_cast<int>(std::min<std::int64_t>(num_units, num_layers_));
  if (problem.max_stages > 0) max_stages_ = std::min(max_stages_, problem.max_stages);
  if (problem.num_stages > 0) max_stages_ = std::min(max_stages_, problem.num_stages);
  for (auto const& unit_class : problem.classes) reach_.emplace_back(problem, unit_class, max_stages_);
}

int UnitSpace::used(std::size_t state, int unit_class) const {
  auto const index = static_cast<std::size_t>(unit_class);
  return static_cast<int>(state / strides_[index] % static_cast<std::size_t>(counts_[index] + 1));
}

}  // namespace ballast::detail
