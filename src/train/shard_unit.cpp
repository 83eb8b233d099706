// SPDX-License-Identifier: Apache-2.0
#include "shard_unit.hpp"

#include "ballast/base/assert.hpp"
#include "ballast/base/error.hpp"
#include "ballast/device/tensor_types.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace ballast::detail {

ShardUnit::ShardUnit(std::string name, std::unique_ptr<Layer> layer, DataType type,
                     std::span<std::int64_t const> shard_share, Communicator* group)
    : name_(std::move(name)), layer_(std::move(layer)), type_(type), group_(group) {
  at::NoGradGuard const not_recording;
  lay_out();
  auto const intervals = shard_intervals(num_elements_, shard_share, size_of(type));
  BALLAST_ASSERT(std::ssize(intervals) == (group ? group->size() : 1));
  mine_ = intervals[group ? static_cast<std::size_t>(group->rank()) : 0];
  for (auto const& interval : intervals) counts_.push_back(interval.size());
  copy_weights();
  convert_buffers();
  layer_->set_training(true);
}

void ShardUnit::lay_out() {
  for (auto& [name, tensor] : layer_->parameters()) {
    if (!tensor.is_floating_point()) {
      throw InvalidArgument(fmt::format("layer {}: parameter {} is of type {}; parameters must be floating point",
                                        name_, name, c10::toString(tensor.scalar_type())));
    }
    auto const end = num_elements_ + tensor.numel();
    parameters_.push_back({name, tensor, tensor.sizes().vec(), {num_elements_, end}, tensor.requires_grad()});
    num_elements_ = end;
  }
}

void ShardUnit::copy_weights() {
  auto const scalar_type = to_scalar_type(type_);
  weights_ = at::empty({mine_.size()}, scalar_type);
  for (auto& parameter : parameters_) {
    auto const common = intersect(mine_, parameter.place);
    if (common.size() > 0) {
      weights_.narrow(0, common.begin - mine_.begin, common.size())
          .copy_(parameter.tensor.reshape({-1}).narrow(0, common.begin - parameter.place.begin, common.size()));
    }
    // Free the module's own memory before the flat buffer is taken, so that both never exist together.
    parameter.tensor.set_data(at::empty({0}, scalar_type));
  }
  if (group_) {
    whole_weights_ = FlatStorage(num_elements_, scalar_type);
    for (auto& parameter : parameters_) {
      parameter.tensor.set_data(whole_weights_.view(parameter.place.begin, parameter.shape));
    }
    whole_weights_.free();
  } else {
    for (auto& parameter : parameters_) {
      parameter.tensor.set_data(
          weights_.narrow(0, parameter.place.begin, parameter.place.size()).view(parameter.shape));
    }
  }
}

void ShardUnit::convert_buffers() {
  for (auto& [name, buffer] : layer_->buffers()) {
    auto const type = buffer.is_floating_point() ? to_scalar_type(type_) : buffer.scalar_type();
    buffer.set_data(buffer.to(type).contiguous());
  }
}

void ShardUnit::allocate_training_state(int num_states) {
  gradients_ = at::zeros({mine_.size()}, weights_.options());
  for (int state = 0; state < num_states; ++state) states_.push_back(at::zeros({mine_.size()}, weights_.options()));

  if (group_) whole_gradients_ = FlatStorage(num_elements_, weights_.scalar_type());
  auto const& whole_gradient = group_ ? whole_gradients_.whole() : gradients_;
  for (auto& parameter : parameters_) {
    // Backward adds to a gradient that is there already, in place.
    if (parameter.trained) {
      parameter.tensor.mutable_grad() =
          whole_gradient.narrow(0, parameter.place.begin, parameter.place.size()).view(parameter.shape);
    }
    auto const common = intersect(mine_, parameter.place);
    auto const part = [&](at::Tensor const& shard) {
      return shard.narrow(0, common.size() > 0 ? common.begin - mine_.begin : 0, common.size());
    };
    KeptPart kept;
    kept.elements = {common.begin - parameter.place.begin, common.end - parameter.place.begin};
    kept.shard = {part(weights_), part(gradients_), {}, parameter.shape.size() >= 2};
    for (auto const& state : states_) kept.shard.states.push_back(part(state));
    if (parameter.trained && common.size() > 0) trained_.push_back(kept.shard);
    kept_.push_back(std::move(kept));
  }
  if (group_) whole_gradients_.free();
}

void ShardUnit::gather() {
  if (!group_ || num_elements_ == 0) return;
  whole_weights_.allocate();
  // Waits for every rank of the group to give its part.
  group_->all_gather_v(weights_.const_data_ptr(), whole_weights_.whole().mutable_data_ptr(), counts_, type_).wait();
}

void ShardUnit::release() {
  if (!group_ || num_elements_ == 0) return;
  whole_weights_.free();
}

void ShardUnit::open_gradient() {
  if (!group_ || num_elements_ == 0 || whole_gradients_.is_allocated()) return;
  whole_gradients_.allocate();
  at::NoGradGuard const not_recording;
  at::Tensor(whole_gradients_.whole()).zero_();
}

void ShardUnit::reduce() {
  if (!group_ || num_elements_ == 0) return;
  at::NoGradGuard const not_recording;
  auto sum = at::empty({mine_.size()}, weights_.options());
  // Waits for every rank of the group to have ended its backward of this layer.
  group_->reduce_scatter_v(whole_gradients_.whole().const_data_ptr(), sum.mutable_data_ptr(), counts_, type_).wait();
  gradients_.add_(sum);
  whole_gradients_.free();
}

void ShardUnit::zero_gradients() {
  at::NoGradGuard const not_recording;
  gradients_.zero_();
}

void ShardUnit::update(OptimizerOptions const& optimizer, double scale, std::int64_t step) {
  at::NoGradGuard const not_recording;
  if (!trained_.empty()) apply_update(optimizer, trained_, step, scale);
}

}  // namespace ballast::detail
