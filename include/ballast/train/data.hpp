// SPDX-License-Identifier: Apache-2.0
/// Samples by index, and the order in which steps take them.
#pragma once

#include "ballast/model/layer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ballast {

/// Samples that can be had by index, on any rank. All samples have the same shapes and element types.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// Returns these samples as one batch, in order. @pre 0 <= index < size()
  virtual Batch samples(std::span<std::int64_t const> indices) const = 0;
  /// The inputs, or the targets, of these samples alone: the first stage needs no targets, the last no inputs. Worth
  /// overriding, so that neither takes memory where it is not used.
  virtual Tensors inputs(std::span<std::int64_t const> indices) const { return samples(indices).inputs; }
  virtual at::Tensor targets(std::span<std::int64_t const> indices) const { return samples(indices).targets; }
};

/// Returns the indices of the samples of step `step` (0 is the first): they depend on (seed, step, size) only, drawn with
/// replacement, so every plan trains on the same data in the same order.
std::vector<std::int64_t> sample_indices(std::uint64_t seed, std::int64_t step, std::int64_t global_batch,
                                         std::int64_t dataset_size);

/// Bytes [begin, end) of text files, taken as one string.
struct TextSplit {
  double begin = 0.0;  ///< as a part of the whole, 0..1
  double end = 1.0;
};

/// Returns byte-level language model data: sample i is the `context` bytes from position i of the split as int64 inputs
/// (B, T) and the same shifted by one as targets (B, T). Text files of a directory are taken in name order, without links
/// and files with a byte 0 among their first 8,192.
/// @throws InvalidArgument if a path is missing or the split holds fewer than context + 1 bytes.
std::unique_ptr<Dataset> make_text_dataset(std::vector<std::filesystem::path> const& paths, std::int64_t context,
                                           TextSplit split);

/// Returns `size` random samples of a fixed smooth function, for tests and examples: inputs (B, num_inputs), targets
/// (B, num_outputs), from `seed` alone.
std::unique_ptr<Dataset> make_regression_dataset(std::int64_t size, std::int64_t num_inputs, std::int64_t num_outputs,
                                                 std::uint64_t seed);

}  // namespace ballast
