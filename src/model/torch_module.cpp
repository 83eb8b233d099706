// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/torch_module.hpp"

#include "ballast/base/error.hpp"

#include <iterator>
#include <sstream>

#include <fmt/format.h>

namespace ballast {
namespace {

namespace nn = torch::nn;

/// A child of a Sequential: its type is known only to AnyModule.
class AnyLayer final : public Layer {
 public:
  explicit AnyLayer(nn::AnyModule module) : module_(std::move(module)) {}

  Tensors forward(Tensors const& inputs) override { return {module_.forward(detail::only_input(inputs))}; }
  std::vector<NamedTensor> parameters() override { return detail::named_tensors(module_.ptr()->named_parameters()); }
  std::vector<NamedTensor> buffers() override { return detail::named_tensors(module_.ptr()->named_buffers()); }
  void set_training(bool training) override { module_.ptr()->train(training); }

 private:
  nn::AnyModule module_;
};

std::string kind_of(nn::Module const& module) {
  std::ostringstream kind;
  kind << module.name() << ' ' << module;
  for (auto const& parameter : module.named_parameters()) kind << ' ' << parameter.key() << parameter.value().sizes();
  return kind.str();
}

}  // namespace

at::Tensor const& detail::only_input(Tensors const& inputs) {
  if (inputs.size() != 1) {
    throw InvalidArgument(
        fmt::format("a module that takes one tensor was given {}; let it take Tensors", inputs.size()));
  }
  return inputs.front();
}

Model model_from(nn::Sequential const& sequential, std::string name) {
  Model model(std::move(name));
  for (auto const& child : sequential->named_children()) {
    auto const place = static_cast<std::size_t>(model.num_layers());
    auto factory = [sequential, place]() -> std::unique_ptr<Layer> {
      auto const module = std::next(sequential->begin(), static_cast<std::ptrdiff_t>(place));
      return std::make_unique<AnyLayer>(module->clone());
    };
    model.add(child.key(), std::move(factory), kind_of(*child.value()));
  }
  return model;
}

}  // namespace ballast
