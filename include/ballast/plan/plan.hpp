// SPDX-License-Identifier: Apache-2.0
/// The plan: which rank runs which layers on which samples and keeps which parameters, and what that will cost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/comm/data_type.hpp"
#include "ballast/plan/prediction.hpp"

namespace ballast {

enum class ZeroLevel : std::int32_t { none = 0, optimizer = 1, gradients = 2, parameters = 3 };
enum class GradientReduction : std::int32_t { per_step, per_micro_batch };
enum class ScheduleKind : std::int32_t { gpipe, one_f_one_b };
enum class OptimizerKind : std::int32_t { sgd, sgd_momentum, adamw };

/// Optimizer state, in tensors of the size of the parameters: sgd 0, sgd_momentum 1, adamw 2.
int num_states(OptimizerKind kind) noexcept;

/// Layers [begin, end) of the model's chain.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const noexcept { return end - begin; }
  friend bool operator==(LayerRange const&, LayerRange const&) = default;
};

/// A contiguous range of layers that one group of ranks runs.
///
/// Example: 6 layers over two stages, `{0, 4}` on ranks {0, 1} and `{4, 6}` on rank {2}; with `batch_share = {3, 1}`
/// rank 0 takes samples 0..2 of every micro-batch of 4, rank 1 sample 3. With `shard_share = {3, 1}` rank 0 keeps the
/// first three quarters of each layer's parameters (`shard_counts`).
struct Stage {
  LayerRange layers;
  std::vector<int> ranks;                 ///< in link order, fastest neighbours adjacent
  std::vector<std::int64_t> batch_share;  ///< samples of a micro-batch per rank; may be 0
  std::vector<std::int64_t> shard_share;  ///< weight of each rank's part of every layer's parameters; may be 0
  ZeroLevel zero = ZeroLevel::parameters; ///< without effect in a group of one rank
  GradientReduction gradient_reduction = GradientReduction::per_micro_batch;
  std::vector<int> recompute;             ///< layers whose forward is repeated in backward, ascending
  friend bool operator==(Stage const&, Stage const&) = default;

  std::int64_t micro_batch() const noexcept;  ///< sum of batch_share
};

/// One copy of the whole pipeline.
struct Replica {
  std::vector<Stage> stages;              ///< in order of the layers
  friend bool operator==(Replica const&, Replica const&) = default;
};

/// Who does what. Plain value, JSON "ballast.plan/1". The trainer runs any valid one, also one written by hand.
struct Plan {
  std::string model;                      ///< fingerprint of the model; empty: any with these layers
  std::string topology;                   ///< fingerprint of the topology; empty: any with these ranks
  std::vector<std::string> layers;        ///< names of the model's layers, in order
  DataType dtype = DataType::float32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::int64_t global_batch = 0;          ///< samples of a step = replicas x num_micro_batches x micro_batch
  std::int64_t num_micro_batches = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::vector<Replica> replicas;
  Predictions predictions;                ///< empty in a plan written by hand
  friend bool operator==(Plan const&, Plan const&) = default;

  int num_ranks() const noexcept;         ///< 1 + the largest rank that appears
};

std::string to_string(ZeroLevel level);                ///< "zero-3"
std::string to_string(GradientReduction reduction);    ///< "per_micro_batch"
std::string to_string(ScheduleKind schedule);          ///< "1f1b"
std::string to_string(OptimizerKind optimizer);        ///< "adamw"
/// @throws InvalidArgument listing the names.
ScheduleKind parse_schedule(std::string_view name);
OptimizerKind parse_optimizer(std::string_view name);

std::string to_json(Plan const& plan);
/// Reads and checks types and keys only; `validate` checks sense. @throws DataError.
Plan plan_from_json(std::string_view text, std::string const& source);

}  // namespace ballast
