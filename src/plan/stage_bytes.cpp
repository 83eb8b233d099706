// SPDX-License-Identifier: Apache-2.0
#include "stage_bytes.hpp"

#include <algorithm>
#include <bit>

namespace ballast::detail {
namespace {

std::vector<std::int64_t> prefix_sums(std::vector<std::int64_t> const& values) {
  std::vector<std::int64_t> sums(1, 0);
  sums.reserve(values.size() + 1);
  for (auto const value : values) sums.push_back(sums.back() + value);
  return sums;
}

}  // namespace

StageBytes::StageBytes(CutClass const& unit_class, bool least)
    : unit_class_(&unit_class),
      fixed_(prefix_sums(unit_class.fixed_bytes)),
      in_flight_(prefix_sums(least ? unit_class.least_in_flight_bytes : unit_class.in_flight_bytes)) {
  auto const& transient = least ? unit_class.least_transient_bytes : unit_class.transient_bytes;
  auto const num_layers = transient.size();
  heights_.emplace_back(num_layers);
  for (std::size_t layer = 0; layer < num_layers; ++layer)
    heights_[0][layer] = in_flight_[layer + 1] + transient[layer];
  for (std::size_t width = 2; width <= num_layers; width *= 2) {
    auto const& half = heights_.back();
    std::vector<std::int64_t> row(num_layers - width + 1);
    for (std::size_t layer = 0; layer < row.size(); ++layer)
      row[layer] = std::max(half[layer], half[layer + width / 2]);
    heights_.push_back(std::move(row));
  }
}

std::int64_t StageBytes::highest(int begin, int end) const {
  auto const power = std::bit_width(static_cast<unsigned>(end - begin)) - 1;
  auto const& row = heights_[static_cast<std::size_t>(power)];
  return std::max(row[static_cast<std::size_t>(begin)], row[static_cast<std::size_t>(end - (1 << power))]);
}

bool StageBytes::grow(std::int64_t in_flight) const {
  auto const& inputs = unit_class_->input_bytes;
  auto const& begins = unit_class_->begin_bytes;
  for (std::size_t layer = 0; layer + 1 < inputs.size(); ++layer) {
    auto const kept = in_flight_[layer + 1] - in_flight_[layer];
    auto const grown = unit_class_->fixed_bytes[layer] + in_flight * (kept + inputs[layer] - inputs[layer + 1]) +
                       begins[layer] - begins[layer + 1];
    if (grown < 0) return false;
  }
  return true;
}

std::vector<int> StageBytes::smallest_begins(std::int64_t memory_bytes, std::int64_t in_flight) const {
  auto const num_layers = static_cast<int>(unit_class_->input_bytes.size());
  std::vector<int> result(static_cast<std::size_t>(num_layers) + 1, 0);
  int begin = 0;
  for (int end = 1; end <= num_layers; ++end) {
    while (begin < end && bytes(begin, end, in_flight) > memory_bytes) ++begin;
    result[static_cast<std::size_t>(end)] = begin;
  }
  return result;
}

}  // namespace ballast::detail
