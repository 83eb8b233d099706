// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/island.hpp"

#include "ballast/base/assert.hpp"

#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace ballast {
namespace {

namespace autograd = torch::autograd;

/// The root of a backward: it hands its gradients over instead of keeping them, so that each is freed as soon as the
/// operator that it is for has run; the caller of the engine would hold them until the end.
struct GradientSource final : autograd::Node {
  autograd::variable_list gradients;

  autograd::variable_list apply(autograd::variable_list&& /*inputs*/) override { return std::move(gradients); }
};

at::Tensor leaf(at::Tensor const& tensor, bool needs_gradient) {
  at::Tensor result = tensor.detach();
  if (needs_gradient && result.is_floating_point()) result.set_requires_grad(true);
  return result;
}

Loss loss_of(LossFunction const& loss, Tensors const& outputs, at::Tensor const& targets) {
  Loss result = loss(outputs, targets);
  BALLAST_ASSERT(result.sum.defined() && result.sum.numel() == 1);
  return result;
}

}  // namespace

Island forward_island(Layer& layer, Tensors const& inputs, bool inputs_need_gradient) {
  Island island;
  island.inputs.reserve(inputs.size());
  for (auto const& input : inputs) island.inputs.push_back(leaf(input, inputs_need_gradient));
  at::AutoGradMode const recording(true);
  island.outputs = layer.forward(island.inputs);
  return island;
}

Tensors forward_only(Layer& layer, Tensors const& inputs) {
  at::NoGradGuard const not_recording;
  Tensors outputs = layer.forward(inputs);
  for (auto& output : outputs)
    output = output.detach();  // a layer may return its input, which may be a leaf of another island
  return outputs;
}

Tensors backward_island(Island island, Tensors output_gradients) {
  BALLAST_ASSERT(output_gradients.size() == island.outputs.size());
  auto source = std::make_shared<GradientSource>();
  for (std::size_t output = 0; output < island.outputs.size(); ++output) {
    auto& gradient = output_gradients[output];
    if (!gradient.defined() || !island.outputs[output].requires_grad()) continue;
    source->add_next_edge(autograd::impl::gradient_edge(island.outputs[output]));
    source->gradients.push_back(std::move(gradient));
  }
  // The edges keep the graph alive; outputs that no operator saved are freed here.
  island.outputs.clear();
  output_gradients.clear();

  if (!source->gradients.empty()) {
    at::Tensor const start = at::empty({0});  // the engine wants something to call the root with
    source->add_input_metadata(start);
    autograd::edge_list const roots{{std::move(source), 0}};
    autograd::Engine::get_default_engine().execute(roots, {start}, /*keep_graph=*/false, /*create_graph=*/false,
                                                   /*accumulate_grad=*/true);
  }

  Tensors input_gradients;
  input_gradients.reserve(island.inputs.size());
  for (auto& input : island.inputs) {
    input_gradients.push_back(input.requires_grad() ? std::exchange(input.mutable_grad(), at::Tensor()) : at::Tensor());
  }
  return input_gradients;
}

LossGradient loss_and_gradient(LossFunction const& loss, Tensors const& outputs, at::Tensor const& targets) {
  Island island;
  for (auto const& output : outputs) island.inputs.push_back(leaf(output, true));
  LossGradient result;
  {
    at::AutoGradMode const recording(true);
    Loss value = loss_of(loss, island.inputs, targets);
    result.sum = value.sum.item<double>();
    result.weight = value.weight;
    island.outputs.push_back(std::move(value.sum));
  }
  at::Tensor one = at::ones_like(island.outputs.front());
  result.output_gradients = backward_island(std::move(island), {std::move(one)});
  return result;
}

LossGradient loss_only(LossFunction const& loss, Tensors const& outputs, at::Tensor const& targets) {
  at::NoGradGuard const not_recording;
  Loss const value = loss_of(loss, outputs, targets);
  return {value.sum.item<double>(), value.weight, {}};
}

}  // namespace ballast
