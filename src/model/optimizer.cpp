// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/optimizer.hpp"

#include "ballast/base/error.hpp"
#include "update_kernels.hpp"

#include <fmt/format.h>

namespace ballast {
namespace {

template <class T>
T* data_of(at::Tensor const& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

template <class T>
void update(OptimizerOptions const& options, ParameterShard const& shard, std::int64_t step, double gradient_scale) {
  auto const size = shard.weights.numel();
  auto* const weights = data_of<T>(shard.weights);
  auto const* const gradients = data_of<T>(shard.gradients);
  if (auto const* adamw = std::get_if<AdamW>(&options)) {
    detail::update_elements<T>(*adamw, shard.decay ? adamw->weight_decay : 0.0, step, gradient_scale, size, weights, gradients,
                               data_of<T>(shard.states[0]), data_of<T>(shard.states[1]));
  } else {
    auto const& sgd = std::get<Sgd>(options);
    T* const velocity = shard.states.empty() ? nullptr : data_of<T>(shard.states[0]);
    detail::update_elements<T>(sgd, shard.decay ? sgd.weight_decay : 0.0, gradient_scale, size, weights, gradients,
                               velocity);
  }
}

/// The kernels see plain arrays, so everything that a tensor knows is checked before.
void check(ParameterShard const& shard, std::size_t num_states) {
  if (shard.states.size() != num_states) {
    throw InvalidArgument(
        fmt::format("the update rule has {} state tensors per shard, found {}", num_states, shard.states.size()));
  }
  std::vector<at::Tensor> tensors = shard.states;
  tensors.push_back(shard.weights);
  tensors.push_back(shard.gradients);
  for (auto const& tensor : tensors) {
    if (!tensor.defined() || tensor.numel() != shard.weights.numel() || !tensor.is_contiguous() ||
        tensor.scalar_type() != shard.weights.scalar_type()) {
      throw InvalidArgument(
          "weights, gradients and states of a shard must be contiguous, of one size and one element type");
    }
  }
}

}  // namespace

std::vector<std::string> state_names(OptimizerOptions const& options) {
  if (std::holds_alternative<AdamW>(options)) return {"exp_avg", "exp_avg_sq"};
  return std::get<Sgd>(options).momentum != 0.0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
}

void apply_update(OptimizerOptions const& options, std::vector<ParameterShard>& shards, std::int64_t step,
                  double gradient_scale) {
  if (step < 1) throw InvalidArgument(fmt::format("the first update has number 1, found {}", step));
  auto const num_states = state_names(options).size();
  for (auto const& shard : shards) {
    check(shard, num_states);
    if (shard.weights.numel() == 0) continue;
    switch (shard.weights.scalar_type()) {
      case at::kFloat:
        update<float>(options, shard, step, gradient_scale);
        break;
      case at::kDouble:
        update<double>(options, shard, step, gradient_scale);
        break;
      default:
        throw InvalidArgument(
            fmt::format("updates are of float32 or float64, found {}", c10::toString(shard.weights.scalar_type())));
    }
  }
}

}  // namespace ballast
