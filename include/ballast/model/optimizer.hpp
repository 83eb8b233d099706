// SPDX-License-Identifier: Apache-2.0
/// Update rules, applied in place to views of shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ballast {

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< on parameters of two or more dimensions only
  friend bool operator==(AdamW const&, AdamW const&) = default;
};

/// Stochastic gradient descent; velocity v = momentum v + g, w -= learning_rate v.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;   ///< added to the gradient, on parameters of two or more dimensions only
  friend bool operator==(Sgd const&, Sgd const&) = default;
};

using OptimizerOptions = std::variant<AdamW, Sgd>;

/// Names of the state tensors of the rule: {"exp_avg", "exp_avg_sq"}, {"momentum"} or {}.
std::vector<std::string> state_names(OptimizerOptions const& options);

/// This rank's part of one parameter: flat views of n elements each.
struct ParameterShard {
  at::Tensor weights;               ///< (n)
  at::Tensor gradients;             ///< (n)
  std::vector<at::Tensor> states;   ///< in the order of `state_names`, (n) each, zero before the first step
  bool decay = true;                ///< weight decay applies
};

/// Applies update number `step` (1 is the first) with the gradients x `gradient_scale` to all shards in place, taking no
/// device memory. Each element depends on its own gradient and state only, so shards give the same bits as whole
/// parameters. @pre the tensors are contiguous
void apply_update(OptimizerOptions const& options, std::vector<ParameterShard>& shards, std::int64_t step,
                  double gradient_scale = 1.0);

}  // namespace ballast
