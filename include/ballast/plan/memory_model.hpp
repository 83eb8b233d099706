// SPDX-License-Identifier: Apache-2.0
/// The peak of every rank, counted along the same actions that the runtime executes.
#pragma once

#include <vector>

#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/plan/plan.hpp"

namespace ballast {

/// Returns the predicted peak of each rank of `plan` (index: rank), an upper bound of what DeviceMemory will measure.
///
/// The runtime and this model keep one contract. All sizes are rounded by `round_allocation`; b is the rank's batch
/// share, N a layer's parameters, n its part of them (`shard_intervals`), e bytes per element; costs are `LayerProfile::at(b)`.
/// - always: baseline; per layer of the stage n e weights, n e gradients, num_states x n e optimizer state.
/// - construction: layers are built one after the other, each as a module of N float32 (plus N e when the dtype is
///   another) beside its own weight shard, after all weight shards of the earlier layers and before any gradients and
///   states exist; 16 quanta more for the rounding of the module's tensors, of which only the sum is known.
/// - load / receive_activation: + inputs of b samples (input_bytes_per_sample, or the previous layer's output_bytes) until the
///   backward of the stage's first layer for that micro-batch has ended.
/// - gather: + N e until release.
/// - forward: rises by forward_peak_bytes, leaves saved_bytes until the layer's backward; with recompute rises by
///   forward_only_peak_bytes and leaves output_bytes.
/// - loss: + targets and the rise of the loss; leaves the gradient of the outputs until their backward (under gpipe that is
///   one for every micro-batch). receive_gradient: + the gradient of the stage's outputs (the larger of the last layer's
///   output_bytes and the next layer's input_gradient_bytes).
/// - backward: in groups of several ranks + N e whole gradient (until reduce); with recompute rises by forward_peak_bytes
///   beside the outputs that are held, leaving saved_bytes + output_bytes in all; then rises by backward_peak_bytes; then
///   saved tensors and the output gradients are freed, the input gradients stay (until the previous layer's backward, or
///   the send; those of layer 0 are freed at once).
/// - reduce: + n e while it runs. send_gradient: its buffer stays until the next send_gradient or the update.
/// - update: nothing (fused kernels work in place).
/// A rank with b = 0 computes nothing but takes part in gathers and reductions.
/// @pre the plan is structurally valid
std::vector<MemoryPrediction> predict_memory(Plan const& plan, ModelProfile const& profile, Topology const& topology);

}  // namespace ballast
