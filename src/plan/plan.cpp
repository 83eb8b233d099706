// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/plan.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace ballast {

int num_states(OptimizerKind kind) noexcept {
  switch (kind) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::sgd_momentum:
      return 1;
    case OptimizerKind::adamw:
      return 2;
  }
  return 2;
}

std::int64_t Stage::micro_batch() const noexcept {
  return std::accumulate(batch_share.begin(), batch_share.end(), std::int64_t{0});
}

int Plan::num_ranks() const noexcept {
  int largest = -1;
  for (auto const& replica : replicas) {
    for (auto const& stage : replica.stages) {
      for (int const rank : stage.ranks) largest = std::max(largest, rank);
    }
  }
  return largest + 1;
}

std::string to_string(ZeroLevel level) { return fmt::format("zero-{}", static_cast<int>(level)); }

std::string to_string(GradientReduction reduction) {
  return reduction == GradientReduction::per_step ? "per_step" : "per_micro_batch";
}

std::string to_string(ScheduleKind schedule) { return schedule == ScheduleKind::gpipe ? "gpipe" : "1f1b"; }

std::string to_string(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::sgd_momentum:
      return "sgd_momentum";
    case OptimizerKind::adamw:
      return "adamw";
  }
  return "adamw";
}

ScheduleKind parse_schedule(std::string_view name) {
  for (auto const kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    if (name == to_string(kind)) return kind;
  }
  throw InvalidArgument(fmt::format("schedule: expected gpipe or 1f1b, found \"{}\"", name));
}

OptimizerKind parse_optimizer(std::string_view name) {
  for (auto const kind : {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    if (name == to_string(kind)) return kind;
  }
  throw InvalidArgument(fmt::format("optimizer: expected sgd, sgd_momentum or adamw, found \"{}\"", name));
}

}  // namespace ballast
