// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/gpt.hpp"

#include "ballast/base/error.hpp"
#include "ballast/model/torch_module.hpp"

#include <cmath>

#include <fmt/format.h>
#include <torch/nn.h>

namespace ballast {
namespace {

namespace nn = torch::nn;

constexpr double kWeightDeviation = 0.02;

nn::Linear make_linear(std::int64_t inputs, std::int64_t outputs, double deviation, bool bias = true) {
  nn::Linear linear(nn::LinearOptions(inputs, outputs).bias(bias));
  nn::init::normal_(linear->weight, 0.0, deviation);
  if (bias) nn::init::zeros_(linear->bias);
  return linear;
}

nn::LayerNorm make_norm(std::int64_t channels) { return nn::LayerNorm(nn::LayerNormOptions({channels})); }

struct Embed : nn::Module {
  explicit Embed(GptOptions const& options)
      : tokens(register_module("tokens", nn::Embedding(options.vocabulary, options.channels))),
        positions(register_parameter("positions", torch::empty({options.context, options.channels}))) {
    nn::init::normal_(tokens->weight, 0.0, kWeightDeviation);
    nn::init::normal_(positions, 0.0, kWeightDeviation);
  }

  at::Tensor forward(at::Tensor const& input) {  // (B, T) -> (B, T, C)
    if (input.dim() != 2 || input.size(1) > positions.size(0)) {
      throw InvalidArgument(
          fmt::format("gpt takes tokens (B, T) with T <= {}, found {}", positions.size(0), c10::str(input.sizes())));
    }
    return tokens(input) + positions.slice(0, 0, input.size(1));
  }

  nn::Embedding tokens;
  at::Tensor positions;  // (T, C)
};

struct Block : nn::Module {
  explicit Block(GptOptions const& options)
      : num_heads(options.num_heads),
        // The sum over 2 residual branches per layer keeps the variance of one.
        residual_deviation(kWeightDeviation / std::sqrt(2.0 * static_cast<double>(options.num_layers))),
        norm1(register_module("norm1", make_norm(options.channels))),
        qkv(register_module("qkv", make_linear(options.channels, 3 * options.channels, kWeightDeviation))),
        projection(register_module("projection", make_linear(options.channels, options.channels, residual_deviation))),
        norm2(register_module("norm2", make_norm(options.channels))),
        expand(register_module("expand", make_linear(options.channels, 4 * options.channels, kWeightDeviation))),
        contract(register_module("contract", make_linear(4 * options.channels, options.channels, residual_deviation))) {
  }

  at::Tensor forward(at::Tensor const& input) {  // (B, T, C) -> (B, T, C)
    at::Tensor const middle = input + attention(norm1(input));
    return middle + contract(at::gelu(expand(norm2(middle))));
  }

  at::Tensor attention(at::Tensor const& input) {  // (B, T, C) -> (B, T, C)
    auto const batch = input.size(0), time = input.size(1), channels = input.size(2);
    // unbind, because its backward stacks the three gradients, where slices would each make one of full size.
    auto const parts = qkv(input).view({batch, time, 3, num_heads, channels / num_heads}).unbind(2);
    auto const heads = [&](std::size_t part) { return parts[part].transpose(1, 2); };  // (B, heads, T, C / heads)
    // LibTorch's fused attention saves no (T, T) matrix: what is saved is linear in B and T.
    auto const result =
        at::scaled_dot_product_attention(heads(0), heads(1), heads(2), /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                         /*is_causal=*/true);
    return projection(result.transpose(1, 2).reshape({batch, time, channels}));
  }

  std::int64_t num_heads;
  double residual_deviation;
  nn::LayerNorm norm1;
  nn::Linear qkv, projection;
  nn::LayerNorm norm2;
  nn::Linear expand, contract;
};

struct Head : nn::Module {
  explicit Head(GptOptions const& options)
      : norm(register_module("norm", make_norm(options.channels))),
        logits(register_module("logits", make_linear(options.channels, options.vocabulary, kWeightDeviation, false))) {}

  at::Tensor forward(at::Tensor const& input) { return logits(norm(input)); }  // (B, T, C) -> (B, T, V)

  nn::LayerNorm norm;
  nn::Linear logits;
};

void check(GptOptions const& options) {
  auto const at_least_one = [](char const* name, std::int64_t value) {
    if (value < 1) throw InvalidArgument(fmt::format("gpt: {}: expected at least 1, found {}", name, value));
  };
  at_least_one("vocabulary", options.vocabulary);
  at_least_one("context", options.context);
  at_least_one("num_layers", options.num_layers);
  at_least_one("num_heads", options.num_heads);
  at_least_one("channels", options.channels);
  if (options.channels % options.num_heads != 0) {
    throw InvalidArgument(fmt::format("gpt: channels: expected a multiple of num_heads ({}), found {}",
                                      options.num_heads, options.channels));
  }
}

}  // namespace

Model make_gpt(GptOptions const& options) {
  check(options);
  Model model("gpt");
  model.add("embed", [options] { return std::make_shared<Embed>(options); });
  for (std::int64_t block = 0; block < options.num_layers; ++block) {
    model.add(
        fmt::format("block{}", block), [options] { return std::make_shared<Block>(options); }, "block");
  }
  model.add("head", [options] { return std::make_shared<Head>(options); });
  return model;
}

}  // namespace ballast
