// SPDX-License-Identifier: Apache-2.0
/// What a RUN.toml says, as values; the format is in docs/formats.md.
#pragma once

#include "ballast/auto_plan.hpp"
#include "ballast/base/log.hpp"
#include "ballast/model/gpt.hpp"
#include "ballast/model/mlp.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/train/data.hpp"
#include "settings.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ballast {

struct TextData {
  std::vector<std::filesystem::path> paths;
};

struct RegressionData {
  std::int64_t samples = 0;
  std::uint64_t seed = 0;
};

struct RunConfig {
  std::variant<GptOptions, MlpOptions> model;
  std::variant<TextData, RegressionData> data;
  double validation = 0.1;  ///< share of the data, at its end

  std::int64_t steps = 0;
  OptimizerOptions optimizer;
  DataType dtype = DataType::float32;
  std::uint64_t seed = 0;
  std::int64_t evaluate_every = 0;    ///< 0: at the end only
  std::int64_t evaluate_batches = 0;  ///< 0: never
  std::int64_t log_every = 0;         ///< 0: every 30 s

  BalanceOptions balance;           ///< with the global batch
  std::filesystem::path plan_file;  ///< empty: find or make one

  std::filesystem::path checkpoint_directory;
  std::int64_t checkpoint_every = 0;  ///< 0: at the end only
  int keep = 3;
  std::string resume;  ///< "auto", "never" or a checkpoint directory

  std::filesystem::path cluster_file;  ///< empty: the real machine
  double collectives_budget_s = 5.0;
  LogLevel log_level = LogLevel::info;
};

/// The sections of a RUN.toml.
std::vector<std::string> const& run_sections();

/// @throws InvalidArgument naming origin, key and expectation, also for keys that are not known.
RunConfig read_run_config(Settings& settings);
/// Reads only what the balancer needs: batch, optimizer and [plan]. @throws as `read_run_config`.
BalanceOptions read_balance_options(Settings& settings);

Model make_model(RunConfig const& config);
std::unique_ptr<Dataset> make_training_data(RunConfig const& config);
/// Nothing when the run is not evaluated.
std::unique_ptr<Dataset> make_validation_data(RunConfig const& config);

/// The largest micro-batch that a plan may use.
std::int64_t largest_micro_batch(RunConfig const& config);
/// The first samples of `data`, as many as the largest micro-batch.
Batch profiling_sample(RunConfig const& config, Dataset const& data);
AutoPlanOptions auto_plan_options(RunConfig const& config);

}  // namespace ballast
