// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/device_memory.hpp"

#include "ballast/base/allocation.hpp"
#include "ballast/base/error.hpp"
#include "ballast/base/units.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/mman.h>

namespace ballast {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kSmallCache = std::int64_t{64} << 20;

struct Block {
  void* data = nullptr;
  std::size_t size = 0;      // what the system gave
  std::int64_t counted = 0;  // what the tensor that holds it asked for, rounded
};

/// Keeps every block it ever took, by size, and hands out the smallest that fits with at most a quarter of slack.
class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(round_allocation(static_cast<std::int64_t>(bytes)));
    // The context is the data: oneDNN and raw_allocate free by the data pointer.
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, void const* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  DeviceMemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void set_capacity(std::int64_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.capacity_bytes = bytes;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.current_bytes;
  }
  void trim() {
    std::lock_guard lock(mutex_);
    free_cached();
  }

 private:
  static void release(void* data);

  void* take(std::int64_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes > stats_.capacity_bytes - stats_.current_bytes) {
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, __LINE__},
          fmt::format("out of device memory: {} asked for, {} in use of {}", format_bytes(bytes),
                      format_bytes(stats_.current_bytes), format_bytes(stats_.capacity_bytes)));
    }
    Block* block = cached(static_cast<std::size_t>(bytes));
    if (!block) block = fresh(static_cast<std::size_t>(bytes));
    block->counted = bytes;
    stats_.current_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
    largest_peak_ = std::max(largest_peak_, stats_.peak_bytes);
    ++stats_.num_allocations;
    return block->data;
  }

  Block* cached(std::size_t bytes) {
    auto const last = bytes + bytes / 4;
    for (auto it = cache_.lower_bound(bytes); it != cache_.end() && it->first <= last; ++it) {
      if (it->second.empty()) continue;
      Block* block = it->second.back();
      it->second.pop_back();
      return block;
    }
    return nullptr;
  }

  Block* fresh(std::size_t bytes) {
    // A cache of other sizes than are needed now is given back before it lifts the whole far past what tensors ever
    // took.
    auto const limit = 2 * std::min(stats_.capacity_bytes, largest_peak_) + kSmallCache;
    if (stats_.reserved_bytes + static_cast<std::int64_t>(bytes) > limit) free_cached();
    void* data = from_system(bytes);
    if (!data) {
      free_cached();
      data = from_system(bytes);
    }
    if (!data) {
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, __LINE__},
          fmt::format("the system has no more memory: {} asked for, {} in use",
                      format_bytes(static_cast<std::int64_t>(bytes)), format_bytes(stats_.current_bytes)));
    }
    stats_.reserved_bytes += static_cast<std::int64_t>(bytes);
    return &(blocks_[data] = {data, bytes, 0});
  }

  static void* from_system(std::size_t bytes) {
    void* data = nullptr;
    if (posix_memalign(&data, bytes < kHugePage ? kCacheLine : kHugePage, bytes) != 0) return nullptr;
    // Pages are dear where they are taken one by one; refused (no such kernel option) is no error.
    if (bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return data;
  }

  void give_back(void* data) {
    std::lock_guard lock(mutex_);
    Block& block = blocks_.find(data)->second;
    stats_.current_bytes -= block.counted;
    cache_[block.size].push_back(&block);
  }

  void free_cached() {
    for (auto& [size, blocks] : cache_) {
      for (Block* block : blocks) {
        void* data = block->data;
        blocks_.erase(data);
        std::free(data);
        stats_.reserved_bytes -= static_cast<std::int64_t>(size);
      }
    }
    cache_.clear();
  }

  std::mutex mutex_;
  DeviceMemoryStats stats_;
  std::int64_t largest_peak_ = 0;
  std::unordered_map<void*, Block> blocks_;  // all, by address; its nodes stay where they are
  // Free blocks by size. A size that ran empty keeps its list: the next step needs it again.
  std::map<std::size_t, std::vector<Block*>> cache_;
};

/// c10 has one CPU allocator per process, hence one here; never destroyed, since tensors may outlive `main`.
CachingAllocator& allocator() {
  static auto* const instance = new CachingAllocator;
  return *instance;
}

void CachingAllocator::release(void* data) {
  if (data) allocator().give_back(data);
}

}  // namespace

void install_device_memory() { c10::SetCPUAllocator(&allocator()); }

void set_device_capacity(std::int64_t bytes) {
  if (bytes <= 0) throw InvalidArgument(fmt::format("device capacity must be positive, found {} bytes", bytes));
  allocator().set_capacity(bytes);
}

DeviceMemoryStats device_memory() noexcept { return allocator().stats(); }
void reset_device_peak() noexcept { allocator().reset_peak(); }
void trim_device_memory() noexcept { allocator().trim(); }

}  // namespace ballast
