// SPDX-License-Identifier: Apache-2.0
#include "cost_table.hpp"

#include <algorithm>

namespace ballast::detail {

std::vector<LayerPoint> const& LayerTable::at(std::int64_t samples) {
  auto const [entry, is_new] = points_.try_emplace(samples);
  if (is_new) {
    entry->second.reserve(profile_->layers.size() + 1);
    for (auto const& layer : profile_->layers) entry->second.push_back(layer.at(samples));
    entry->second.push_back(profile_->loss.at(samples));
  }
  return entry->second;
}

double LinkTable::seconds(Operation operation, LinkLevel level, int ranks, std::int64_t bytes) {
  auto const [entry, is_new] = seconds_.try_emplace({operation, level, ranks, bytes}, 0.0);
  if (is_new) entry->second = profile_->seconds(operation, level, ranks, bytes);
  return entry->second;
}

std::int64_t boundary_gradient_bytes(std::vector<LayerPoint> const& points, int layer) {
  auto const index = static_cast<std::size_t>(layer);
  return std::max(points[index - 1].output_bytes, points[index].input_gradient_bytes);
}

}  // namespace ballast::detail
