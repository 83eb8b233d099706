// SPDX-License-Identifier: Apache-2.0
/// Local reductions of the ranks' contributions, always in rank order, so that equal inputs give equal bits.
#pragma once

#include "ballast/comm/communicator.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace ballast::detail {

/// Writes the element-wise reduction of `inputs` (one pointer per rank, `count` elements each) to `result`, which may
/// be one of the inputs. bfloat16 is accumulated in float32 and rounded once at the end, to nearest even.
void reduce_in_rank_order(std::span<void const* const> inputs, void* result, std::int64_t count, DataType type,
                          ReduceOperation operation);

inline float bfloat16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t float_to_bfloat16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // a quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace ballast::detail
