// SPDX-License-Identifier: Apache-2.0
/// Where a pass over the schedule takes its samples from.
#pragma once

#include "ballast/model/layer.hpp"
#include "ballast/plan/shares.hpp"
#include "ballast/train/data.hpp"

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

namespace ballast::detail {

/// Samples by their place in the global batch (in evaluation: in all its batches, one after the other).
/// Floating tensors come in the plan's element type.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual Tensors inputs(Interval places) const = 0;
  virtual at::Tensor targets(Interval places) const = 0;
};

/// Samples of a batch that every rank has whole; no copy unless the element type differs.
class BatchSource final : public SampleSource {
 public:
  /// `batch` outlives the source.
  BatchSource(Batch const& batch, c10::ScalarType type) : batch_(batch), type_(type) {}
  Tensors inputs(Interval places) const override;
  at::Tensor targets(Interval places) const override;

 private:
  Batch const& batch_;
  c10::ScalarType type_;
};

/// Samples fetched from a data set when they are needed.
class DatasetSource final : public SampleSource {
 public:
  /// `data` outlives the source; `indices` are by place.
  DatasetSource(Dataset const& data, std::vector<std::int64_t> indices, c10::ScalarType type)
      : data_(data), indices_(std::move(indices)), type_(type) {}
  Tensors inputs(Interval places) const override;
  at::Tensor targets(Interval places) const override;

 private:
  Dataset const& data_;
  std::vector<std::int64_t> indices_;
  c10::ScalarType type_;
};

}  // namespace ballast::detail
