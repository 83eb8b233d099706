// SPDX-License-Identifier: Apache-2.0
/// The costs of a micro-batch on a whole group: for given batch shares, or the least over all.
#pragma once

#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"

#include <cstdint>
#include <vector>

namespace ballast::detail {

struct SearchInput;

/// One layer. Seconds are those of the slowest rank, bytes are sums over the ranks.
struct LayerLoad {
  double forward_s = 0.0;
  double backward_s = 0.0;
  double update_s = 0.0;  ///< with the parameters spread by speed: no spreading is faster
  std::int64_t saved = 0;
  std::int64_t output = 0;
  std::int64_t forward_peak = 0;
  std::int64_t forward_only_peak = 0;
  std::int64_t backward_peak = 0;
  std::int64_t input_gradient = 0;
  std::int64_t most_saved_by_recompute = 0;  ///< at most, by the whole group for one micro-batch
};

struct UnitLoad {
  std::vector<LayerLoad> layers;
  LayerLoad loss;
  std::int64_t input = 0;   ///< of the first layer
  std::int64_t target = 0;  ///< of the loss
};

/// Returns what a micro-batch costs on `devices` with these batch shares.
UnitLoad load_of(SearchInput const& input, std::vector<Device> const& devices,
                 std::vector<std::int64_t> const& batch_share);

/// Returns lower bounds of `load_of` over all batch shares with the sum `micro_batch`; exact for one device.
UnitLoad least_load(SearchInput const& input, std::vector<Device> const& devices, std::int64_t micro_batch);

}  // namespace ballast::detail
