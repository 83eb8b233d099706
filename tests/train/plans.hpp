// SPDX-License-Identifier: Apache-2.0
/// Plans written by hand, and models and data small enough to train in milliseconds.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/train/data.hpp"
#include "ballast/train/trainer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace ballast::test {

/// How a plan differs from the usual: 1f1b, float64, three micro-batches.
struct PlanOptions {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::int64_t num_micro_batches = 3;
  DataType dtype = DataType::float64;
};

/// A stage; shares are equal when empty (batch: 4 samples in all).
Stage stage(int begin, int end, std::vector<int> ranks, std::vector<std::int64_t> batch_share = {},
            std::vector<std::int64_t> shard_share = {}, std::vector<int> recompute = {});

/// A plan of one replica, with layers, optimizer and batch filled in.
Plan make_plan(Model const& model, OptimizerOptions const& optimizer, std::vector<Stage> stages,
               PlanOptions const& options = {});

/// Tokens from a hash of their position; the next token depends on the two before it, so there is something to learn.
/// With `masked`, about a third of the targets, different for each sample, do not count.
std::unique_ptr<Dataset> make_token_dataset(std::int64_t vocabulary, std::int64_t context, bool masked);

/// A chain of 5 layers with several tensors between them: floating ones that need gradients, one whose gradient nobody
/// uses, an integer one that travels on, a layer without parameters, one that returns its input. Inputs (B, 8), outputs (B, 3).
Model make_rails();

/// A chain of 3 layers with dropout in the middle. Inputs (B, 8), outputs (B, 3).
Model make_dropout_model();

/// A folder that all ranks share and the last one out removes.
class SharedFolder {
 public:
  explicit SharedFolder(Communicator& world);
  ~SharedFolder();
  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  Communicator& world_;
  std::filesystem::path path_;
};

/// Largest |a - b| over all tensors, relative to the largest |b| of the tensor, or to a thousandth of the largest of all
/// (some parameters are rounding noise only: their gradient is zero in exact arithmetic). Infinite if names differ.
double relative_difference(std::vector<WholeTensor> const& a, std::vector<WholeTensor> const& b);

/// True if names and all bits are equal.
bool bit_equal(std::vector<WholeTensor> const& a, std::vector<WholeTensor> const& b);

}  // namespace ballast::test
