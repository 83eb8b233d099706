// SPDX-License-Identifier: Apache-2.0
/// What a Trainer is made of.
#pragma once

#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/device/pace.hpp"
#include "ballast/train/trainer.hpp"
#include "sample_source.hpp"
#include "stage_runner.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ballast {
namespace detail {

/// The update rule with its numbers, as checkpoints keep it.
nlohmann::json optimizer_json(OptimizerOptions const& options);

}  // namespace detail

class Trainer::Impl {
 public:
  Impl(Model const& model, Plan plan, OptimizerOptions optimizer, Communicator& world, TrainerOptions options);

  StepReport step(Batch const& global_batch);
  StepReport step(Dataset const& data);
  double evaluate(Dataset const& data, std::int64_t num_batches);
  std::filesystem::path save(std::filesystem::path const& directory, std::string const& config,
                             SaveOptions const& options);
  bool resume(std::filesystem::path const& directory);
  std::vector<WholeTensor> gather_parameters();

  std::int64_t num_steps() const noexcept { return num_steps_; }
  Plan const& plan() const noexcept { return plan_; }

 private:
  void require_equal_on_all_ranks();
  void join_group();
  StepReport step(detail::SampleSource const& samples, double start_s);
  /// Runs work that communicates. An error on this rank is reported to all, so that none waits for this one for ever.
  void guarded(std::function<void(std::string& doing)> const& work);

  /// This rank's parts of parameters and optimizer state, and its buffers.
  std::vector<TensorShard> shards();
  std::string metadata(std::string const& config) const;
  /// @throws DataError saying what differs if the checkpoint belongs to another model, dtype, optimizer or seed.
  void require_same_training(CheckpointInfo const& checkpoint, std::vector<TensorShard> const& shards) const;
  /// Loads one step directory; false, with a warning, if it is damaged. Collective over the world.
  bool try_resume(std::filesystem::path const& step_directory, std::string& first_fault);
  std::vector<WholeTensor> gather_layer(int layer, int stage);

  Model const& model_;
  Plan plan_;
  OptimizerOptions optimizer_;
  Communicator& world_;
  TrainerOptions options_;
  Pacer pacer_;
  int stage_ = -1;                               // -1: this rank is in none
  std::unique_ptr<Communicator> group_;          // null in a group of one rank
  std::unique_ptr<detail::StageRunner> runner_;  // null without stage
  std::vector<Action> actions_;
  std::int64_t num_steps_ = 0;
  bool failed_ = false;
};

}  // namespace ballast
