// SPDX-License-Identifier: Apache-2.0
/// A layer: the smallest thing that is placed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ballast {

using Tensors = std::vector<at::Tensor>;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A built layer. Its parameters are leaves whose data the runtime replaces by views into flat buffers (`set_data`).
class Layer {
 public:
  virtual ~Layer() = default;
  /// Returns the outputs for these inputs; dimension 0 of each is samples.
  virtual Tensors forward(Tensors const& inputs) = 0;
  /// Parameters with names unique in the layer, always in the same order.
  virtual std::vector<NamedTensor> parameters() = 0;
  /// Tensors that are state but not trained.
  virtual std::vector<NamedTensor> buffers() { return {}; }
  virtual void set_training(bool /*training*/) {}
};

using LayerFactory = std::function<std::unique_ptr<Layer>()>;

/// How `Model::add` turns what a factory returns into a Layer; model/torch_module.hpp adds torch::nn modules.
template <class T>
struct LayerAdapter;

template <class Derived>
struct LayerAdapter<std::unique_ptr<Derived>> {
  static std::unique_ptr<Layer> adapt(std::unique_ptr<Derived> layer) { return layer; }
};

/// Inputs and targets of some samples; dimension 0 of every tensor is samples.
struct Batch {
  Tensors inputs;
  at::Tensor targets;
};

/// The loss of some samples as a sum and its weight (tokens, or samples), so that uneven parts add up exactly.
struct Loss {
  at::Tensor sum;       ///< scalar
  double weight = 0.0;
};

using LossFunction = std::function<Loss(Tensors const& outputs, at::Tensor const& targets)>;

/// Cross-entropy of logits (..., V) with int64 targets (...); targets below 0 do not count. Weight: targets counted.
Loss cross_entropy_loss(Tensors const& outputs, at::Tensor const& targets);
/// Squared error, summed over all elements. Weight: number of elements.
Loss squared_error_loss(Tensors const& outputs, at::Tensor const& targets);

}  // namespace ballast
