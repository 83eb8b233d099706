// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/profile_model.hpp"

#include "ballast/base/allocation.hpp"
#include "ballast/base/error.hpp"
#include "ballast/device/device_memory.hpp"
#include "ballast/device/tensor_types.hpp"
#include "ballast/model/island.hpp"
#include "measuring.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

namespace ballast {
namespace {

using detail::median;
using detail::Meter;
using detail::repeat;

/// How many elements the timed update has: enough to be timed, and no more than are needed to leave every cache.
constexpr std::int64_t kFewestUpdated = 100'000;
constexpr std::int64_t kMostUpdated = std::int64_t{1} << 24;

void raise(std::int64_t& largest, std::int64_t value) { largest = std::max(largest, value); }

std::int64_t rounded_bytes(Tensors const& tensors) {
  std::int64_t bytes = 0;
  for (auto const& tensor : tensors) {
    if (tensor.defined()) bytes += round_allocation(static_cast<std::int64_t>(tensor.nbytes()));
  }
  return bytes;
}

Tensors first_samples(Tensors const& tensors, std::int64_t samples) {
  Tensors result;
  for (auto const& tensor : tensors) result.push_back(tensor.slice(0, 0, samples));
  return result;
}

at::Tensor in_dtype(at::Tensor const& tensor, at::ScalarType dtype) {
  return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}

/// A built layer with its parameters where the runtime has them: views of one flat buffer, their gradients of another.
struct FlatLayer {
  std::unique_ptr<Layer> layer;
  at::Tensor weights;    // (N)
  at::Tensor gradients;  // (N)
};

FlatLayer flatten(std::unique_ptr<Layer> layer, at::ScalarType dtype) {
  at::NoGradGuard const not_recording;
  auto parameters = layer->parameters();
  std::int64_t size = 0;
  for (auto const& parameter : parameters) size += parameter.tensor.numel();
  FlatLayer flat{std::move(layer), at::empty({size}, dtype), at::zeros({size}, dtype)};
  std::int64_t begin = 0;
  for (auto& [name, tensor] : parameters) {
    auto const end = begin + tensor.numel();
    auto const data = flat.weights.slice(0, begin, end).view(tensor.sizes());
    data.copy_(tensor);
    tensor.set_data(data);
    if (tensor.requires_grad()) tensor.mutable_grad() = flat.gradients.slice(0, begin, end).view(tensor.sizes());
    begin = end;
  }
  for (auto& [name, tensor] : flat.layer->buffers()) tensor.set_data(in_dtype(tensor, dtype));
  return flat;
}

class Profiler {
 public:
  Profiler(Model const& model, Batch const& sample, ProfileOptions const& options)
      : model_(model), options_(options), stopwatch_(options), dtype_(to_scalar_type(options.dtype)) {
    std::sort(options_.samples.begin(), options_.samples.end());
    options_.samples.erase(std::unique(options_.samples.begin(), options_.samples.end()), options_.samples.end());
    check(sample);
    for (auto const& input : first_samples(sample.inputs, most_samples())) values_.push_back(in_dtype(input, dtype_));
    targets_ = in_dtype(sample.targets.slice(0, 0, most_samples()), dtype_);
  }

  ModelProfile run(std::int64_t baseline_bytes) {
    ModelProfile profile;
    profile.name = model_.name();
    profile.dtype = options_.dtype;
    profile.device = "cpu";
    profile.baseline_bytes = baseline_bytes;
    auto const per_sample = [&](at::Tensor const& tensor) {
      return static_cast<std::int64_t>(tensor.nbytes()) / most_samples();
    };
    for (auto const& input : values_) profile.input_bytes_per_sample += per_sample(input);
    profile.target_bytes_per_sample = per_sample(targets_);
    std::int64_t largest = 0;
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      profile.layers.push_back(profile_layer(layer));
      raise(largest, profile.layers.back().num_parameters);
    }
    profile.loss = profile_loss(profile.layers);
    values_.clear();
    profile.update_s_per_parameter = update_s_per_parameter(std::clamp(largest, kFewestUpdated, kMostUpdated));
    return profile;
  }

 private:
  struct Measured {
    LayerProfile profile;
    Tensors outputs;  // of the most samples
  };

  std::int64_t most_samples() const { return options_.samples.back(); }

  void check(Batch const& sample) const {
    if (options_.samples.empty() || options_.samples.front() < 1) {
      throw InvalidArgument("profile: samples: expected one or more counts of at least 1");
    }
    if (options_.repetitions < 1 || options_.warm_up < 0) {
      throw InvalidArgument(fmt::format("profile: expected repetitions >= 1 and warm_up >= 0, found {} and {}",
                                        options_.repetitions, options_.warm_up));
    }
    if (model_.num_layers() == 0) throw InvalidArgument(fmt::format("model '{}' has no layers", model_.name()));
    Tensors tensors = sample.inputs;
    tensors.push_back(sample.targets);
    for (auto const& tensor : tensors) {
      auto const held = tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
      if (held < most_samples()) {
        throw InvalidArgument(
            fmt::format("profile: the sample batch holds {} samples, but {} are to be measured", held, most_samples()));
      }
    }
  }

  /// Measures the layer, or finds it measured, and leaves its outputs in `values_`.
  LayerProfile profile_layer(int layer) {
    // The first layer is a kind of its own: its inputs need no gradient.
    auto const kind = (layer == 0 ? "first " : "") + model_.layer_kind(layer);
    bool const shared = !model_.layer_kind(layer).empty();
    auto found = shared ? measured_.find(kind) : measured_.end();
    if (found == measured_.end()) {
      Measured measured = measure(layer);
      if (!shared) {
        values_ = std::move(measured.outputs);
        return measured.profile;
      }
      found = measured_.emplace(kind, std::move(measured)).first;
    }
    values_ = found->second.outputs;
    LayerProfile profile = found->second.profile;
    profile.name = model_.layer_name(layer);
    return profile;
  }

  Measured measure(int index) {
    Measured result;
    result.profile.name = model_.layer_name(index);
    FlatLayer flat;
    translate_torch_errors(fmt::format("profiling layer '{}'", result.profile.name), [&] {
      flat = flatten(model_.build(index, options_.seed), dtype_);
      flat.layer->set_training(true);
    });
    result.profile.num_parameters = flat.weights.numel();
    for (auto const samples : options_.samples) {
      translate_torch_errors(fmt::format("profiling layer '{}' with {} samples", result.profile.name, samples), [&] {
        result.profile.points.push_back(measure_point(flat, first_samples(values_, samples), samples, index > 0));
        if (samples == most_samples()) result.outputs = forward_only(*flat.layer, values_);
      });
    }
    return result;
  }

  LayerPoint measure_point(FlatLayer const& flat, Tensors const& inputs, std::int64_t samples,
                           bool inputs_need_gradient) {
    Layer& layer = *flat.layer;
    LayerPoint point;
    point.samples = samples;
    std::int64_t held_by_all_bytes = 0;  // if all layers were like this one; known after the first run
    std::vector<double> forward_s;
    std::vector<double> backward_s;
    repeat(options_, [&](bool kept) {
      LayerPoint now;
      {
        Meter const meter;
        Tensors const outputs = forward_only(layer, inputs);
        // What outputs hold may be more than their elements (a view of a larger tensor) or less (a view of the input).
        now.output_bytes = std::max(meter.held(), rounded_bytes(outputs));
        now.forward_only_peak_bytes = std::max(meter.rise(), now.output_bytes);
        for (auto const& output : outputs) {
          if (output.dim() == 0 || output.size(0) != samples) {
            throw InvalidArgument("dimension 0 of every output of a layer must be samples");
          }
        }
      }

      Meter const forward_meter;
      Island island;
      if (kept) caches_.flush(held_by_all_bytes);
      now.forward_s = stopwatch_.time([&] { island = forward_island(layer, inputs, inputs_need_gradient); });
      now.saved_bytes = forward_meter.held();
      now.forward_peak_bytes = forward_meter.rise();

      Tensors output_gradients;
      for (auto const& output : island.outputs) {
        output_gradients.push_back(output.is_floating_point() ? at::ones_like(output.detach()) : at::Tensor());
      }
      Meter const backward_meter;
      std::int64_t const freed = now.saved_bytes + rounded_bytes(output_gradients);
      Tensors input_gradients;
      if (kept) caches_.flush(held_by_all_bytes);
      now.backward_s =
          stopwatch_.time([&] { input_gradients = backward_island(std::move(island), std::move(output_gradients)); });
      now.backward_peak_bytes = backward_meter.rise();
      now.input_gradient_bytes = std::max(backward_meter.held() + freed, rounded_bytes(input_gradients));

      held_by_all_bytes = model_.num_layers() * (now.saved_bytes + parameter_bytes(flat.weights.numel()));
      if (!kept) return;
      forward_s.push_back(now.forward_s);
      backward_s.push_back(now.backward_s);
      raise(point.saved_bytes, now.saved_bytes);
      raise(point.output_bytes, now.output_bytes);
      raise(point.forward_peak_bytes, now.forward_peak_bytes);
      raise(point.forward_only_peak_bytes, now.forward_only_peak_bytes);
      raise(point.backward_peak_bytes, now.backward_peak_bytes);
      raise(point.input_gradient_bytes, now.input_gradient_bytes);
    });
    point.forward_s = median(std::move(forward_s));
    point.backward_s = median(std::move(backward_s));
    return point;
  }

  /// Bytes of the weights and gradients of a layer.
  std::int64_t parameter_bytes(std::int64_t num_parameters) const {
    return 2 * num_parameters * size_of(options_.dtype);
  }

  LayerProfile profile_loss(std::vector<LayerProfile> const& layers) {
    LayerProfile profile;
    profile.name = "loss";
    for (auto const samples : options_.samples) {
      LayerPoint point;
      point.samples = samples;
      auto const outputs = first_samples(values_, samples);
      auto const targets = targets_.slice(0, 0, samples);
      std::int64_t held_by_all_bytes = 0;
      for (auto const& layer : layers) {
        held_by_all_bytes += layer.at(samples).saved_bytes + parameter_bytes(layer.num_parameters);
      }
      std::vector<double> seconds;
      translate_torch_errors(fmt::format("profiling the loss with {} samples", samples), [&] {
        repeat(options_, [&](bool kept) {
          Meter const meter;
          LossGradient loss;
          if (kept) caches_.flush(held_by_all_bytes);
          double const lasted_s = stopwatch_.time([&] { loss = loss_and_gradient(model_.loss(), outputs, targets); });
          if (!kept) return;
          seconds.push_back(lasted_s);
          raise(point.forward_peak_bytes, meter.rise());
          raise(point.input_gradient_bytes, std::max(meter.held(), rounded_bytes(loss.output_gradients)));
        });
      });
      point.forward_s = median(std::move(seconds));
      profile.points.push_back(point);
    }
    return profile;
  }

  double update_s_per_parameter(std::int64_t size) {
    std::vector<double> seconds;
    translate_torch_errors(fmt::format("profiling the update of {} parameters", size), [&] {
      auto const zeros = [&] { return at::zeros({size}, dtype_); };
      std::vector<ParameterShard> shards(1);
      shards[0].weights = zeros();
      shards[0].gradients = zeros().fill_(1e-3);
      for (std::size_t state = 0; state < state_names(options_.optimizer).size(); ++state)
        shards[0].states.push_back(zeros());
      std::int64_t step = 0;
      repeat(options_, [&](bool kept) {
        if (kept) caches_.flush(detail::CacheFlusher::kMostBytes);  // as a whole step lies between two updates
        double const lasted_s = stopwatch_.time([&] { apply_update(options_.optimizer, shards, ++step); });
        if (kept) seconds.push_back(lasted_s);
      });
    });
    return median(std::move(seconds)) / static_cast<double>(size);
  }

  Model const& model_;
  ProfileOptions options_;
  detail::Stopwatch stopwatch_;
  detail::CacheFlusher caches_;
  at::ScalarType dtype_;
  Tensors values_;  // the inputs of the next layer, of the most samples
  at::Tensor targets_;
  std::map<std::string, Measured> measured_;  // by kind
};

/// Bytes that are on the device for the framework: without those of the sample batch.
std::int64_t baseline(Batch const& sample) {
  Tensors tensors = sample.inputs;
  tensors.push_back(sample.targets);
  std::set<void const*> storages;
  std::int64_t bytes = device_memory().current_bytes;
  for (auto const& tensor : tensors) {
    if (!tensor.defined()) continue;
    auto const& data = tensor.storage().data_ptr();
    // One made before DeviceMemory was installed does not count.
    if (data.get_deleter() != c10::GetCPUAllocator()->raw_deleter() || !storages.insert(data.get()).second) continue;
    bytes -= round_allocation(static_cast<std::int64_t>(tensor.storage().nbytes()));
  }
  return std::max<std::int64_t>(bytes, 0);
}

}  // namespace

ModelProfile profile_model(Model const& model, Batch const& sample, ProfileOptions const& options) {
  install_device_memory();
  auto const baseline_bytes = baseline(sample);
  return Profiler(model, sample, options).run(baseline_bytes);
}

}  // namespace ballast
