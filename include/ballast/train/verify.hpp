// SPDX-License-Identifier: Apache-2.0
/// Checks that a plan trains like one process, on the user's own model.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/train/data.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

/// Losses and parameters of a reference run.
struct ReferenceRun {
  std::vector<double> losses;           ///< mean loss of each step
  std::vector<NamedTensor> parameters;  ///< after the last step, names as in checkpoints
};

/// Trains `num_steps` steps in this process with a plain LibTorch loop: whole model, whole global batch, no shard, no
/// micro-batch, no schedule, no communicator. The oracle of the equivalence tests. Local.
ReferenceRun train_reference(Model const& model, OptimizerOptions const& optimizer, Dataset const& data,
                             std::int64_t global_batch, std::int64_t num_steps, DataType dtype, std::uint64_t seed);

struct VerifyReport {
  std::vector<double> reference_losses;
  std::vector<double> plan_losses;
  double largest_loss_difference = 0.0;       ///< relative
  double largest_parameter_difference = 0.0;  ///< |a - b| / max|b|, over tensors
  std::string first_different_layer;          ///< in chain order, by parameters after the first step; empty: none
  bool equal = false;                         ///< both differences within the tolerance
};

/// Runs reference (on rank 0) and plan for `num_steps` in float64 and compares; equal on all ranks. `tolerance` 1e-10.
/// Collective over `world`.
VerifyReport verify_plan(Model const& model, Plan plan, OptimizerOptions const& optimizer, Dataset const& data,
                         std::int64_t num_steps, std::uint64_t seed, Communicator& world, double tolerance = 1e-10);

}  // namespace ballast
