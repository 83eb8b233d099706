// SPDX-License-Identifier: Apache-2.0
/// What layers and links cost, looked up once and kept: the same few questions are asked thousands of times.
#pragma once

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/model/model_profile.hpp"

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace ballast::detail {

/// The costs of all layers by number of samples. References stay valid as long as the table.
class LayerTable {
 public:
  explicit LayerTable(ModelProfile const& profile) : profile_(&profile) {}  ///< `profile` outlives the table

  /// Returns the costs of each layer at `samples`; after the layers stands the loss.
  std::vector<LayerPoint> const& at(std::int64_t samples);

  ModelProfile const& profile() const noexcept { return *profile_; }
  int num_layers() const noexcept { return static_cast<int>(profile_->layers.size()); }

 private:
  ModelProfile const* profile_;
  std::map<std::int64_t, std::vector<LayerPoint>> points_;
};

/// The seconds of collectives and messages.
class LinkTable {
 public:
  explicit LinkTable(CollectiveProfile const& profile) : profile_(&profile) {}  ///< `profile` outlives the table

  double seconds(Operation operation, LinkLevel level, int ranks, std::int64_t bytes);

 private:
  CollectiveProfile const* profile_;
  std::map<std::tuple<Operation, LinkLevel, int, std::int64_t>, double> seconds_;
};

/// Returns the bytes of the gradient that crosses the boundary before `layer`, given the costs of all layers.
std::int64_t boundary_gradient_bytes(std::vector<LayerPoint> const& points, int layer);

}  // namespace ballast::detail
