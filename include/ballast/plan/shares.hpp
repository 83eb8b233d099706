// SPDX-License-Identifier: Apache-2.0
/// From shares to intervals: which elements of a layer, and which samples of a micro-batch, belong to which rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ballast {

/// Shards begin at multiples of this many bytes, so that vector instructions and NCCL are content.
inline constexpr std::int64_t kShardAlignmentBytes = 16;

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(Interval const&, Interval const&) = default;
};

/// Returns the common part; {x, x} when there is none.
Interval intersect(Interval const& a, Interval const& b) noexcept;

/// Returns the elements of a layer of `num_elements` that each rank keeps: contiguous, in order, covering all, boundaries
/// at the exact proportion rounded down to the alignment (the last rank with a share takes the rest).
/// Example: 100 float32 with shares {3, 1} gives [0, 72), [72, 100): 75 rounded down to a multiple of 4.
/// @pre shares not all 0, none negative
std::vector<Interval> shard_intervals(std::int64_t num_elements, std::span<std::int64_t const> shares,
                                      std::int64_t bytes_per_element);

/// Returns the samples of a micro-batch that each rank takes: running sums of `batch_share`.
std::vector<Interval> batch_intervals(std::span<std::int64_t const> batch_share);

/// Returns `total` divided into integers proportional to `weights` by largest remainders (ties to the lower index).
std::vector<std::int64_t> apportion(std::int64_t total, std::span<double const> weights);

}  // namespace ballast
