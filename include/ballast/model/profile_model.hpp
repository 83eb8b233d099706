// SPDX-License-Identifier: Apache-2.0
/// Measures a model one layer at a time; the model may exceed the memory of the machine that measures it.
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/comm/data_type.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/model/optimizer.hpp"

namespace ballast {

struct ProfileOptions {
  std::vector<std::int64_t> samples = {1, 2, 4, 8};  ///< sample counts to measure, each at most what `sample` holds
  DataType dtype = DataType::float32;
  OptimizerOptions optimizer = AdamW{};              ///< whose update is timed
  std::uint64_t seed = 0;
  int warm_up = 2;                                   ///< runs dropped per point
  int repetitions = 5;                               ///< median of so many runs
  bool cpu_time = false;                             ///< thread CPU time instead of wall time: for simulated devices
};

/// Returns the profile of `model`: every layer (equal kinds once) built alone, fed with the outputs of the one before,
/// measured forward, recording and not, and backward at each sample count, with the bytes counted by DeviceMemory
/// (which is installed here). Before each timed run the caches are filled with other data, as the other layers do in a
/// step. `sample` holds at least max(samples) samples. Local.
/// @throws InvalidArgument if `sample` is too small; DeviceError naming the layer if one layer alone exceeds the
/// device.
ModelProfile profile_model(Model const& model, Batch const& sample, ProfileOptions const& options);

}  // namespace ballast
