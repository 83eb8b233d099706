// SPDX-License-Identifier: Apache-2.0
/// Device memory that can be counted and that ends: a caching allocator under every CPU tensor of the process.
#pragma once

#include <cstdint>
#include <limits>

namespace ballast {

/// Bytes of tensors on the device, each allocation rounded by `round_allocation`.
struct DeviceMemoryStats {
  std::int64_t current_bytes = 0;   ///< in live tensors
  std::int64_t peak_bytes = 0;      ///< largest `current_bytes` since the last reset
  std::int64_t reserved_bytes = 0;  ///< taken from the system, cached blocks included
  std::int64_t capacity_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t num_allocations = 0; ///< since the start
};

/// Installs the allocator as c10's CPU allocator for the rest of the process (c10 has one, so this is process-wide).
/// Idempotent. Tensors that exist already stay with the old allocator and are not counted.
///
/// Blocks are kept and reused, since fresh pages are dear; the bytes counted are those of the request, not of the block
/// that serves it. An allocation that would lift current bytes above the capacity throws c10::OutOfMemoryError (cached
/// blocks do not count); `translate_torch_errors` turns that into a `DeviceError`. Blocks are given back when those in
/// use and cached exceed twice the bytes that tensors ever took together.
/// Example: a tensor of 10 MB, freed, leaves 10 MB reserved; one of 9 MB then takes that block and counts 9 MB.
void install_device_memory();

/// Sets the most bytes that tensors may take together. @throws InvalidArgument if not positive.
void set_device_capacity(std::int64_t bytes);

DeviceMemoryStats device_memory() noexcept;
void reset_device_peak() noexcept;
/// Returns cached blocks to the system.
void trim_device_memory() noexcept;

}  // namespace ballast
