// SPDX-License-Identifier: Apache-2.0
/// A layer run as an autograd island, the same way by the profiler and by the runtime.
#pragma once

#include "ballast/model/layer.hpp"

namespace ballast {

/// A forward that recorded: detached inputs, and outputs that hold the graph back to them and to the parameters.
struct Island {
  Tensors inputs;
  Tensors outputs;
};

/// Runs a forward that records. Floating inputs become detached leaves that require gradients when
/// `inputs_need_gradient`; their storage is shared with what was passed.
Island forward_island(Layer& layer, Tensors const& inputs, bool inputs_need_gradient);

/// Runs a forward that records nothing and returns detached outputs.
Tensors forward_only(Layer& layer, Tensors const& inputs);

/// Runs backward, accumulating into the parameters' preset `.grad`, frees the graph and returns the gradients of the
/// inputs (undefined tensors for integer ones, for inputs that the layer ignored, or when they needed none). An
/// undefined output gradient is skipped. Given the only references (moved in), outputs that nothing saved are freed at
/// the start and output gradients as soon as they were used; the profiler measures it so.
Tensors backward_island(Island island, Tensors output_gradients);

/// Loss of outputs and the gradient of its sum with respect to them.
struct LossGradient {
  double sum = 0.0;
  double weight = 0.0;
  Tensors output_gradients;
};
LossGradient loss_and_gradient(LossFunction const& loss, Tensors const& outputs, at::Tensor const& targets);

/// Loss without gradient.
LossGradient loss_only(LossFunction const& loss, Tensors const& outputs, at::Tensor const& targets);

}  // namespace ballast
