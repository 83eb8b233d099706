// SPDX-License-Identifier: Apache-2.0
/// The rounding of device allocations, shared by those who measure bytes and those who predict them.
#pragma once

#include <cstdint>

namespace ballast {

/// Every allocation on a device is rounded up to this; the profiler measures rounded bytes, the memory model adds them.
inline constexpr std::int64_t kAllocationQuantum = 512;

/// Returns `bytes` rounded up to the allocation quantum; 0 stays 0.
constexpr std::int64_t round_allocation(std::int64_t bytes) {
  return (bytes + kAllocationQuantum - 1) / kAllocationQuantum * kAllocationQuantum;
}

}  // namespace ballast
