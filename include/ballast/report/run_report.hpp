// SPDX-License-Identifier: Apache-2.0
/// What a run measured, against what its plan predicted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// One rank, predicted and measured.
struct RankReport {
  int rank = 0;
  std::int64_t predicted_peak_bytes = 0;
  std::int64_t measured_peak_bytes = 0;
  std::int64_t capacity_bytes = 0;
  double predicted_busy_s = 0.0;   ///< per step
  double measured_busy_s = 0.0;    ///< per step, median over steps
  friend bool operator==(RankReport const&, RankReport const&) = default;
};

/// A run. Plain value, JSON "ballast.run/1".
struct RunReport {
  std::int64_t first_step = 0;     ///< updates done before this run (resumed: > 0)
  std::int64_t num_steps = 0;      ///< updates done by this run
  double predicted_step_s = 0.0;
  double measured_step_s = 0.0;    ///< median over steps, without the first
  double train_loss = 0.0;         ///< of the last step
  double validation_loss = 0.0;    ///< NaN: not evaluated
  double tokens_per_s = 0.0;       ///< loss weight per second of training
  std::vector<RankReport> ranks;
  friend bool operator==(RunReport const&, RunReport const&) = default;
};

std::string to_json(RunReport const& report);
/// @throws DataError.
RunReport run_report_from_json(std::string_view text, std::string const& source);

/// Returns the table that `ballast train` prints at its end: per rank predicted and measured peak with their ratio and
/// the cap, busy time, and the step time.
std::string to_table(RunReport const& report);

}  // namespace ballast
