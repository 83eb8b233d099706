// SPDX-License-Identifier: Apache-2.0
/// What every layer costs in time and memory, measured, as a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/base/allocation.hpp"
#include "ballast/comm/data_type.hpp"

namespace ballast {

/// One layer measured with one number of samples, on a device of speed 1, without dilation.
/// Weights, and in backward the gradient buffer of the weights, exist before and after and are not counted.
struct LayerPoint {
  std::int64_t samples = 0;
  double forward_s = 0.0;
  double backward_s = 0.0;                  ///< without the recomputed forward
  std::int64_t saved_bytes = 0;             ///< newly held from forward to backward: outputs and what autograd keeps
  std::int64_t output_bytes = 0;            ///< of the outputs; all that is held when the layer is recomputed
  std::int64_t forward_peak_bytes = 0;      ///< largest rise during a forward that records, >= saved_bytes
  std::int64_t forward_only_peak_bytes = 0; ///< largest rise during a forward that does not record, >= output_bytes
  std::int64_t backward_peak_bytes = 0;     ///< largest rise during backward above its start (saved and output gradients there)
  std::int64_t input_gradient_bytes = 0;    ///< of the gradients of the inputs, held after backward
  friend bool operator==(LayerPoint const&, LayerPoint const&) = default;
};

/// One layer. Points are sorted by samples, which are positive and distinct.
struct LayerProfile {
  std::string name;
  std::int64_t num_parameters = 0;
  std::vector<LayerPoint> points;
  friend bool operator==(LayerProfile const&, LayerProfile const&) = default;

  /// Returns the costs at `samples` >= 0: exact at a measured point, piecewise linear between and beyond the points,
  /// proportional below the first, all 0 at 0 samples. Bytes of an unmeasured size are rounded up and get 16 quanta more,
  /// since allocation rounding is not linear; so they stay upper bounds.
  LayerPoint at(std::int64_t samples) const;
};

/// A model as the balancer sees it. JSON "ballast.model/1".
struct ModelProfile {
  std::string name;
  DataType dtype = DataType::float32;       ///< of weights, gradients, optimizer state and activations
  std::string device;                       ///< what was measured, e.g. "cpu"
  std::int64_t input_bytes_per_sample = 0;
  std::int64_t target_bytes_per_sample = 0;
  std::int64_t baseline_bytes = 0;          ///< held by the framework before any layer exists
  double update_s_per_parameter = 0.0;      ///< optimizer step on a device of speed 1
  std::vector<LayerProfile> layers;         ///< the chain, in order; layer i+1 takes layer i's outputs
  /// The loss after the last layer: forward_s is forward and backward together, forward_peak_bytes its largest rise
  /// including the gradient of the outputs, input_gradient_bytes that gradient, which stays; the rest is 0.
  LayerProfile loss;
  friend bool operator==(ModelProfile const&, ModelProfile const&) = default;
};

std::string to_json(ModelProfile const& profile);
/// @throws DataError: unknown keys, non-finite or negative values, unsorted points, no layers.
ModelProfile model_profile_from_json(std::string_view text, std::string const& source);

/// Hash of the model's identity (name, dtype, layer names and parameter counts), not of measured values.
std::string fingerprint(ModelProfile const& profile);

}  // namespace ballast
