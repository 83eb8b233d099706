// SPDX-License-Identifier: Apache-2.0
#include "sample_source.hpp"

#include "ballast/base/error.hpp"

#include <span>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

at::Tensor as_type(at::Tensor tensor, c10::ScalarType type) {
  return tensor.is_floating_point() ? tensor.to(type) : tensor;
}

Tensors as_type(Tensors tensors, c10::ScalarType type) {
  for (auto& tensor : tensors) tensor = as_type(tensor, type);
  return tensors;
}

std::span<std::int64_t const> at(std::vector<std::int64_t> const& indices, Interval places) {
  return std::span(indices).subspan(static_cast<std::size_t>(places.begin), static_cast<std::size_t>(places.size()));
}

}  // namespace

Tensors BatchSource::inputs(Interval places) const {
  Tensors slices;
  for (auto const& tensor : batch_.inputs)
    slices.push_back(as_type(tensor.narrow(0, places.begin, places.size()), type_));
  return slices;
}

at::Tensor BatchSource::targets(Interval places) const {
  return as_type(batch_.targets.narrow(0, places.begin, places.size()), type_);
}

Tensors DatasetSource::inputs(Interval places) const { return as_type(data_.inputs(at(indices_, places)), type_); }

at::Tensor DatasetSource::targets(Interval places) const { return as_type(data_.targets(at(indices_, places)), type_); }

}  // namespace ballast::detail
