// SPDX-License-Identifier: Apache-2.0
/// Times work on a device and, on a simulated one, makes it last as long as there.
#pragma once

#include <functional>

namespace ballast {

/// Returns the CPU seconds of this thread, unaffected by who else uses the core.
double thread_cpu_seconds() noexcept;
/// Returns monotonic wall seconds.
double wall_seconds() noexcept;

/// Runs work at the pace of a device.
///
/// slowdown 0: a real device; work takes the time it takes. Otherwise (dilation / speed) work that took c seconds of
/// this thread's CPU time lasts at least c x slowdown seconds of wall time, the rest is slept at the end of `run`.
/// Example: dilation 2, speed 0.5, so slowdown 4: 3 ms of CPU time last 12 ms.
class Pacer {
 public:
  /// `idle`, if given, is called from time to time while the rest is slept: a message that is under way moves on only
  /// when its sender calls the communication library, and a simulated device must not delay it by its sleep.
  explicit Pacer(double slowdown = 0.0, std::function<void()> idle = {});
  /// Runs `work`, sleeps the rest, and returns the seconds it lasted. Nothing is slept when `work` throws;
  /// what `idle` throws passes through.
  double run(std::function<void()> const& work);
  /// Total of what `run` returned since the last reset.
  double busy_s() const noexcept { return busy_s_; }
  void reset() noexcept { busy_s_ = 0.0; }

 private:
  double slowdown_;
  std::function<void()> idle_;
  double busy_s_ = 0.0;
};

}  // namespace ballast
