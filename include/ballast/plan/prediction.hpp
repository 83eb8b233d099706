// SPDX-License-Identifier: Apache-2.0
/// What a plan will cost, rank by rank, and how good it provably is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

/// Bytes on one rank at the moment of its peak, by cause.
struct MemoryPrediction {
  std::int64_t weights = 0;          ///< shards
  std::int64_t gradients = 0;        ///< shards
  std::int64_t optimizer_state = 0;  ///< shards
  std::int64_t gathered = 0;         ///< whole weights and whole gradients of layers being computed
  std::int64_t activations = 0;      ///< inputs, saved tensors and outputs of micro-batches in flight
  std::int64_t boundary = 0;         ///< gradients of activations: received, or being sent
  std::int64_t transient = 0;        ///< the rise inside the running forward, backward, loss, reduction or update
  std::int64_t baseline = 0;         ///< of the framework
  std::int64_t capacity = 0;         ///< what the device has; not part of the peak
  friend bool operator==(MemoryPrediction const&, MemoryPrediction const&) = default;

  std::int64_t peak() const noexcept {
    return weights + gradients + optimizer_state + gathered + activations + boundary + transient + baseline;
  }
  bool fits() const noexcept { return peak() <= capacity; }
};

/// Seconds of one rank in a step; they add up to the step.
struct RankTimes {
  double busy_s = 0.0;         ///< computing
  double communicate_s = 0.0;  ///< in gathers and reductions, without waiting for their partners
  double wait_s = 0.0;         ///< for messages and partners
  friend bool operator==(RankTimes const&, RankTimes const&) = default;
};

struct RankPrediction {
  MemoryPrediction memory;
  RankTimes times;
  friend bool operator==(RankPrediction const&, RankPrediction const&) = default;
};

struct StagePrediction {
  double micro_batch_s = 0.0;  ///< forward and backward of one micro-batch with its collectives
  std::string limited_by;      ///< "time", "memory: activations of 2 micro-batches", ...
  friend bool operator==(StagePrediction const&, StagePrediction const&) = default;
};

/// All predictions of a plan; `ranks` is empty when there are none.
struct Predictions {
  double step_s = 0.0;               ///< simulated, in seconds of the job (with dilation)
  double bubble = 0.0;               ///< share of rank time spent waiting, 0..1
  double lower_bound_s = 0.0;        ///< no plan within the options is faster than this, by the same model
  double gap = 0.0;                  ///< (step_s - lower_bound_s) / lower_bound_s
  bool measured_collectives = false; ///< false: link times are stated defaults
  std::int64_t num_candidates = 0;   ///< plans that were tried
  std::vector<RankPrediction> ranks;
  std::vector<StagePrediction> stages;
  std::vector<std::string> reasons;  ///< why this one and not the next best, in plain words
  friend bool operator==(Predictions const&, Predictions const&) = default;
};

}  // namespace ballast
