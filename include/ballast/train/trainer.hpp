// SPDX-License-Identifier: Apache-2.0
/// Runs a plan: any valid plan trains like one process.
#pragma once

#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/comm/communicator.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/train/data.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace ballast {

/// Returns the plan's name for an update rule.
OptimizerKind kind_of(OptimizerOptions const& options) noexcept;

struct TrainerOptions {
  std::uint64_t seed = 0;  ///< of initial parameters and of the data order
  Device device;           ///< of this rank; memory_bytes 0: no cap
  double dilation = 0.0;   ///< 0: a real device; else layers last CPU time x dilation / device.speed
};

/// One step as this rank saw it; loss and weight are those of the whole global batch, equal on all ranks.
struct StepReport {
  std::int64_t step = 0;        ///< number of updates done, this one included
  double loss = 0.0;            ///< mean: sum / weight
  double weight = 0.0;          ///< tokens or samples that counted
  double step_s = 0.0;          ///< wall time, the slowest rank's
  double busy_s = 0.0;          ///< computing, this rank
  double communicate_s = 0.0;   ///< in gathers, reductions and waits, this rank
  std::int64_t peak_bytes = 0;  ///< of DeviceMemory since the trainer was constructed, this rank
};

/// One whole tensor of the model or of the optimizer, gathered.
struct WholeTensor {
  std::string name;  ///< as in checkpoints: "parameters/<layer>/<name>"
  at::Tensor tensor;
};

/// Runs a plan on the ranks of a communicator; rank i of it is rank i of the plan.
///
/// All members are collective over the communicator; an error on one rank becomes one error on all.
class Trainer {
 public:
  /// Builds this rank's layers and shards. @throws InvalidArgument listing every fault of the plan, or if the optimizer is
  /// not the plan's; DeviceError if the shards alone do not fit. `model` and `world` outlive the trainer.
  Trainer(Model const& model, Plan plan, OptimizerOptions optimizer, Communicator& world, TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// One step on the global batch, which every rank passes whole; its memory is the caller's, and no plan counts it.
  /// @throws InvalidArgument if it has another size, or if no target counts (nothing is updated then).
  StepReport step(Batch const& global_batch);
  /// One step on the samples that (seed, step) picks; each rank fetches its own only.
  StepReport step(Dataset const& data);

  /// Returns the mean loss of the first `num_batches` global batches of `data` in a fixed order, without training.
  double evaluate(Dataset const& data, std::int64_t num_batches);

  /// Updates done so far.
  std::int64_t num_steps() const noexcept;
  Plan const& plan() const noexcept;

  /// Writes a checkpoint of parameters, optimizer state, step and seed; `config` (a JSON text) is kept with it. Returns the
  /// step directory. @throws IoError on all ranks; training can go on.
  std::filesystem::path save(std::filesystem::path const& directory, std::string const& config = "{}",
                             SaveOptions const& options = {});
  /// Continues from the newest step below `directory` that loads, bit-equal to never having stopped; false when there is none.
  /// A damaged step is skipped with a warning when an earlier one loads. @throws DataError if none loads, or if it belongs
  /// to another model, seed or optimizer.
  bool resume(std::filesystem::path const& directory);

  /// Returns all parameters, whole, on rank 0 (empty elsewhere). For verification and small models.
  std::vector<WholeTensor> gather_parameters();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast
