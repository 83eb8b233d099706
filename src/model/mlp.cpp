// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/mlp.hpp"

#include "ballast/base/error.hpp"
#include "ballast/model/torch_module.hpp"

#include <fmt/format.h>
#include <torch/nn.h>

namespace ballast {
namespace {

struct MlpLayer : torch::nn::Module {
  MlpLayer(std::int64_t inputs, std::int64_t outputs, bool activated)
      : linear(register_module("linear", torch::nn::Linear(inputs, outputs))), activated(activated) {}

  at::Tensor forward(at::Tensor const& input) {  // (B, inputs) -> (B, outputs)
    return activated ? at::gelu(linear(input)) : linear(input);
  }

  torch::nn::Linear linear;
  bool activated;
};

}  // namespace

Model make_mlp(MlpOptions const& options) {
  auto const& widths = options.widths;
  if (widths.size() < 2)
    throw InvalidArgument(fmt::format("mlp: widths: expected two or more, found {}", widths.size()));
  for (auto const width : widths) {
    if (width < 1) throw InvalidArgument(fmt::format("mlp: widths: expected at least 1 each, found {}", width));
  }
  Model model("mlp");
  model.set_loss(squared_error_loss);
  for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    auto const inputs = widths[layer], outputs = widths[layer + 1];
    bool const activated = layer + 2 < widths.size();
    model.add(
        fmt::format("linear{}", layer), [=] { return std::make_shared<MlpLayer>(inputs, outputs, activated); },
        fmt::format("{}x{}{}", inputs, outputs, activated ? "-gelu" : ""));
  }
  return model;
}

}  // namespace ballast
