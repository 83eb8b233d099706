// SPDX-License-Identifier: Apache-2.0
// The oracle: a plain training loop that shares with the engine only what defines the task (how layers are built, which
// samples a step takes, the loss), nothing of how the engine computes.
#include "ballast/device/tensor_types.hpp"
#include "ballast/train/verify.hpp"

#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

namespace ballast {
namespace {

at::Tensor as_type(at::Tensor const& tensor, c10::ScalarType type) {
  return tensor.is_floating_point() ? tensor.to(type) : tensor;
}

struct Parameter {
  std::string name;
  at::Tensor tensor;
  at::Tensor first;   // exp_avg, or velocity
  at::Tensor second;  // exp_avg_sq
};

/// Loshchilov and Hutter 2019, algorithm 2, line by line.
void update(AdamW const& rule, Parameter& parameter, at::Tensor const& gradient, std::int64_t step) {
  double const decay = parameter.tensor.dim() >= 2 ? rule.weight_decay : 0.0;
  parameter.first = rule.beta1 * parameter.first + (1.0 - rule.beta1) * gradient;
  parameter.second = rule.beta2 * parameter.second + (1.0 - rule.beta2) * gradient * gradient;
  auto const mean = parameter.first / (1.0 - std::pow(rule.beta1, static_cast<double>(step)));
  auto const variance = parameter.second / (1.0 - std::pow(rule.beta2, static_cast<double>(step)));
  auto const change = mean / (at::sqrt(variance) + rule.epsilon) + decay * parameter.tensor;
  parameter.tensor.sub_(rule.learning_rate * change);
}

void update(Sgd const& rule, Parameter& parameter, at::Tensor const& gradient, std::int64_t /*step*/) {
  double const decay = parameter.tensor.dim() >= 2 ? rule.weight_decay : 0.0;
  parameter.first = rule.momentum * parameter.first + gradient + decay * parameter.tensor;
  parameter.tensor.sub_(rule.learning_rate * parameter.first);
}

}  // namespace

ReferenceRun train_reference(Model const& model, OptimizerOptions const& optimizer, Dataset const& data,
                             std::int64_t global_batch, std::int64_t num_steps, DataType dtype, std::uint64_t seed) {
  auto const type = to_scalar_type(dtype);
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<Parameter> parameters;
  for (int index = 0; index < model.num_layers(); ++index) {
    layers.push_back(model.build(index, seed));
    at::NoGradGuard const not_recording;
    for (auto& [name, tensor] : layers.back()->parameters()) {
      tensor.set_data(tensor.to(type));
      parameters.push_back({fmt::format("parameters/{}/{}", model.layer_name(index), name), tensor,
                            at::zeros_like(tensor), at::zeros_like(tensor)});
    }
    for (auto& [name, buffer] : layers.back()->buffers()) buffer.set_data(as_type(buffer, type));
    layers.back()->set_training(true);
  }

  ReferenceRun run;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    auto const batch = data.samples(sample_indices(seed, step, global_batch, data.size()));
    Tensors tensors;
    for (auto const& input : batch.inputs) tensors.push_back(as_type(input, type));
    for (auto& layer : layers) tensors = layer->forward(tensors);
    auto const loss = model.loss()(tensors, as_type(batch.targets, type));
    auto const mean = loss.sum / loss.weight;
    mean.backward();
    run.losses.push_back(mean.item<double>());

    at::NoGradGuard const not_recording;
    for (auto& parameter : parameters) {
      auto& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) continue;
      std::visit([&](auto const& rule) { update(rule, parameter, gradient, step + 1); }, optimizer);
      gradient.reset();
    }
  }
  for (auto& parameter : parameters) run.parameters.push_back({parameter.name, parameter.tensor.detach()});
  return run;
}

}  // namespace ballast
