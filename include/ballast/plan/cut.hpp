// SPDX-License-Identifier: Apache-2.0
/// The exact contiguous cut of a chain of layers over devices of a few classes, with memory as a hard constraint.
#pragma once

#include "ballast/plan/plan.hpp"

#include <cstdint>
#include <vector>

namespace ballast {

/// A class of equal units (a device, or a group of devices) that each can run one stage. Vectors are per layer.
///
/// A stage [i, j) with k micro-batches in flight needs, in bytes, sum(fixed) + (k - 1) sum(in_flight) + k input[i] +
/// begin[i] + max over its layers l of (sum(in_flight[i..l]) + transient[l]): the last micro-batch has come as far as
/// layer l, forward or backward, when l needs its transient bytes. Example: fixed {10, 10}, in_flight {4, 2}, transient
/// {1, 9}, input {1, 1}, begin {0, 0}, k = 2: 20 + 6 + 2 + max(5, 15) = 43.
struct CutClass {
  int count = 0;  ///< units available; some may stay idle
  std::int64_t memory_bytes = 0;
  std::vector<double> seconds;                ///< forward and backward of one micro-batch of the layer
  std::vector<std::int64_t> fixed_bytes;      ///< held always: shards of weights, gradients, optimizer state
  std::vector<std::int64_t> in_flight_bytes;  ///< per micro-batch in flight
  std::vector<std::int64_t> transient_bytes;  ///< while the layer runs
  std::vector<std::int64_t> input_bytes;      ///< per micro-batch in flight if the stage begins with the layer
  std::vector<std::int64_t> begin_bytes;      ///< once if the stage begins with the layer
  /// Recompute: memory can be bought with time. A stage that needs more than memory_bytes takes so much longer for
  /// every missing byte, as long as it fits with the least bytes instead of the others. Empty: it cannot.
  double seconds_per_byte = 0.0;
  bool per_in_flight = false;  ///< seconds_per_byte / k, since a layer saves its bytes k times; slower to cut
  std::vector<std::int64_t> least_in_flight_bytes;
  std::vector<std::int64_t> least_transient_bytes;
};

enum class CutObjective : std::int32_t {
  bottleneck,  ///< the largest t of a stage: sum(seconds) + seconds_per_byte x missing bytes
  step,        ///< a time that the step cannot go below, by every stage: see `begin_seconds`
};

/// Example: 4 equal layers of 1 s on 2 devices give the bottleneck 2 s; as a step of 8 micro-batches with the begin and
/// end seconds {0, 1, 2, 3} and {3, 2, 1, 0} they give (8 + 1) x 2 = 18 s, what the schedule really takes.
struct CutProblem {
  std::vector<CutClass> classes;
  std::int64_t num_micro_batches = 1;                 ///< M
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  ///< in flight: min(M, stages to the end) for 1f1b, M for gpipe
  CutObjective objective = CutObjective::bottleneck;
  /// For `step`. What one micro-batch takes, at least, in the layers before this one, and in those after it; empty: 0.
  /// From layer to layer they change by no more than the layer's seconds in any class. A stage [i, j) that is the k-th
  /// from the end then takes begin[i] + max(M t, a t + c end[j - 1]): while the pipeline fills and drains it waits.
  /// Under gpipe a = M, c = 1; under 1f1b a = M - k + 1, c = 2 if k < M, else a = (M + 1) / 2, c = 1.
  std::vector<double> begin_seconds;
  std::vector<double> end_seconds;
  int max_stages = 0;  ///< 0: as many as units
  int num_stages = 0;  ///< exactly so many; 0: any number
};

struct CutStage {
  LayerRange layers;
  int unit_class = 0;
  friend bool operator==(CutStage const&, CutStage const&) = default;
};

struct CutResult {
  bool feasible = false;
  double bottleneck_s = 0.0;     ///< the largest stage time by the objective (sums by differences of prefix sums),
                                 ///< minimal over all cuts, orders and numbers of stages
  std::vector<CutStage> stages;  ///< as few as reach the bottleneck
};

/// Returns the cut with the least bottleneck among those that fit, over free order of the classes; `feasible` false
/// when none fits. Exact, by reach over used counts and bisection over realisable stage times: "The cut, exactly" in
/// docs/design.md. @throws InvalidArgument for NaN, negative or wrong-sized input, or more than 4 million states (the
/// product of count + 1 over the classes).
CutResult cut(CutProblem const& problem);

}  // namespace ballast
