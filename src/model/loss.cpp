// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/model/layer.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>

namespace ballast {
namespace {

at::Tensor const& only(Tensors const& outputs, char const* loss) {
  if (outputs.size() != 1) {
    throw InvalidArgument(fmt::format("{} needs a last layer with one output, found {}", loss, outputs.size()));
  }
  return outputs.front();
}

}  // namespace

Loss cross_entropy_loss(Tensors const& outputs, at::Tensor const& targets) {
  at::Tensor const& logits = only(outputs, "cross_entropy_loss");  // (..., V)
  auto const counted = at::ge(targets, 0).sum().item<std::int64_t>();
  // The kernel skips one number only; every target below 0 becomes that one.
  at::Tensor const flat_targets = at::clamp_min(targets.reshape({-1}), -1);
  auto sum = at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), flat_targets, {}, at::Reduction::Sum,
                                    /*ignore_index=*/-1);
  return {std::move(sum), static_cast<double>(counted)};
}

Loss squared_error_loss(Tensors const& outputs, at::Tensor const& targets) {
  at::Tensor const& output = only(outputs, "squared_error_loss");
  if (output.sizes() != targets.sizes()) {
    throw InvalidArgument(
        fmt::format("squared_error_loss needs targets of the shape of the outputs: {} elements, found {}",
                    output.numel(), targets.numel()));
  }
  auto sum = at::mse_loss(output, targets.to(output.scalar_type()), at::Reduction::Sum);
  return {std::move(sum), static_cast<double>(output.numel())};
}

}  // namespace ballast
