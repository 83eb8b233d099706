// SPDX-License-Identifier: Apache-2.0
/// What the profiler measures with: bytes, seconds and repetitions.
#pragma once

#include "ballast/device/device_memory.hpp"
#include "ballast/device/pace.hpp"
#include "ballast/model/profile_model.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ballast::detail {

/// Bytes on the device relative to when it was made.
class Meter {
 public:
  Meter() {
    reset_device_peak();
    start_ = device_memory().current_bytes;
  }
  std::int64_t held() const { return device_memory().current_bytes - start_; }
  std::int64_t rise() const { return device_memory().peak_bytes - start_; }

 private:
  std::int64_t start_ = 0;
};

/// Calls `run(kept)` for the warm-up (not kept) and the repetitions (kept).
template <class Run>
void repeat(ProfileOptions const& options, Run const& run) {
  for (int round = 0; round < options.warm_up + options.repetitions; ++round) run(round >= options.warm_up);
}

class Stopwatch {
 public:
  explicit Stopwatch(ProfileOptions const& options) : now_(options.cpu_time ? thread_cpu_seconds : wall_seconds) {}
  /// Returns the seconds that `work` takes.
  template <class Work>
  double time(Work const& work) const {
    double const start_s = now_();
    work();
    return now_() - start_s;
  }

 private:
  double (*now_)() noexcept;
};

/// Fills the caches with something else. In a step other layers run between two runs of one layer, so a layer timed
/// over and over again would find its weights and activations nearer than it will in a step.
class CacheFlusher {
 public:
  /// Touches as many bytes as all layers hold together, which a step touches between two uses of a layer's data.
  void flush(std::int64_t held_by_all_bytes) {
    auto const touched = std::clamp<std::int64_t>(held_by_all_bytes, 0, kMostBytes) / kWordBytes;
    for (std::int64_t word = 0; word < touched; ++word) ++words_[static_cast<std::size_t>(word)];
  }

  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;  ///< beyond that everything comes from memory

 private:
  static constexpr std::int64_t kWordBytes = 8;
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(kMostBytes / kWordBytes);  // not on the device
};

/// Returns the middle value. @pre not empty
inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ballast::detail
