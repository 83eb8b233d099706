// SPDX-License-Identifier: Apache-2.0
/// The loop of `ballast train`: steps, evaluation, checkpoints, stopping early, and the report.
#pragma once

#include "ballast/cluster/environment.hpp"
#include "ballast/report/run_report.hpp"
#include "ballast/train/data.hpp"
#include "ballast/train/trainer.hpp"
#include "run_config.hpp"
#include "stop_signals.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace ballast {

struct RunData {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> validation;  ///< nothing: not evaluated
};

struct RunOutcome {
  RunReport report;
  bool stopped_early = false;  ///< a checkpoint is committed; the run can be started again
};

/// What ends a run before its last step.
struct StopRule {
  StopSignals const& signals;
  std::optional<std::int64_t> step;  ///< stop after this one
};

/// Trains up to `config.steps` or until `stop` says so, and commits a checkpoint at the end. `settings` (a JSON text) is kept
/// with it. Collective over the job. @throws Error on all ranks, also when the loss is not finite.
RunOutcome run_training(Environment& environment, RunConfig const& config, Trainer& trainer, RunData const& data,
                        StopRule const& stop, std::string const& settings);

}  // namespace ballast
