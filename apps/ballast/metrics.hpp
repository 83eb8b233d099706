// SPDX-License-Identifier: Apache-2.0
/// What rank 0 tells about a run while it runs: metrics.jsonl and progress on stderr.
#pragma once

#include "ballast/train/trainer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ballast {

/// One JSON line per step: step, loss, step_s, tokens_per_s, and validation_loss where it was computed.
///
/// A full disk costs the metrics, not the run: the first failure is a warning, then nothing more is written.
class Metrics {
 public:
  /// Keeps the lines of the file up to `first_step` (a resumed run repeats what came after), drops the others.
  Metrics(std::filesystem::path path, std::int64_t first_step);
  void add(StepReport const& report, std::optional<double> validation_loss);

 private:
  void give_up(std::string const& reason);
  std::filesystem::path path_;
  bool works_ = true;
};

/// A line that rewrites itself when stderr is a terminal, else a line every `log_every` steps, or every 30 s when that is 0.
class Progress {
 public:
  Progress(std::int64_t first_step, std::int64_t num_steps, std::int64_t log_every);
  void step(StepReport const& report);
  /// Leaves the rewritten line, so that other text can follow.
  void end_line();

 private:
  std::int64_t first_step_;
  std::int64_t num_steps_;
  std::int64_t log_every_;
  bool is_terminal_;
  bool is_open_ = false;
  double start_s_;
  double last_line_s_;
};

}  // namespace ballast
