// SPDX-License-Identifier: Apache-2.0
/// torch::nn modules as layers. Needs torch/torch.h, so only files that define modules include it.
#pragma once

#include <torch/nn.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ballast/model/layer.hpp"
#include "ballast/model/model.hpp"

namespace ballast {

namespace detail {

inline std::vector<NamedTensor> named_tensors(torch::OrderedDict<std::string, at::Tensor> const& tensors) {
  std::vector<NamedTensor> result;
  for (auto const& item : tensors) result.push_back({item.key(), item.value()});
  return result;
}

/// Returns the one input of a module that takes a tensor. @throws InvalidArgument if the layer before gives another
/// number.
at::Tensor const& only_input(Tensors const& inputs);

template <class Module>
class TorchLayer final : public Layer {
 public:
  explicit TorchLayer(std::shared_ptr<Module> module) : module_(std::move(module)) {}

  Tensors forward(Tensors const& inputs) override {
    if constexpr (requires { Tensors(module_->forward(inputs)); }) {
      return module_->forward(inputs);
    } else {
      return {module_->forward(only_input(inputs))};
    }
  }
  std::vector<NamedTensor> parameters() override { return named_tensors(module_->named_parameters()); }
  std::vector<NamedTensor> buffers() override { return named_tensors(module_->named_buffers()); }
  void set_training(bool training) override { module_->train(training); }

 private:
  std::shared_ptr<Module> module_;
};

}  // namespace detail

/// A module with `Tensor forward(Tensor)` or `Tensors forward(Tensors const&)`.
template <class Module>
struct LayerAdapter<std::shared_ptr<Module>> {
  static std::unique_ptr<Layer> adapt(std::shared_ptr<Module> module) {
    return std::make_unique<detail::TorchLayer<Module>>(std::move(module));
  }
};

/// Holders (TORCH_MODULE) and modules returned by value.
template <class T>
struct LayerAdapter {
  static std::unique_ptr<Layer> adapt(T holder) {
    if constexpr (std::is_base_of_v<torch::nn::Module, T>) {
      return LayerAdapter<std::shared_ptr<T>>::adapt(std::make_shared<T>(std::move(holder)));
    } else {
      return LayerAdapter<std::shared_ptr<typename T::ContainedType>>::adapt(holder.ptr());
    }
  }
};

/// Returns a model whose layers are the children of `sequential`, with their present values (each is cloned where it is
/// placed). Children of equal type, printed form and parameter shapes are profiled once.
Model model_from(torch::nn::Sequential const& sequential, std::string name = "sequential");

}  // namespace ballast
