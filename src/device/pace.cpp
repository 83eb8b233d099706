// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/pace.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>

namespace ballast {
namespace {

// Between calls of `idle`: short as long as it finds work, since more is likely to come.
constexpr double kShortestPause_s = 50e-6;
constexpr double kLongestPause_s = 500e-6;
constexpr double kIdleTakes_s = 5e-6;  ///< less without work

double seconds(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void sleep_until(double wall_s) {
  // By default Linux wakes a thread up to 50 us late; that is once per action and would add up.
  thread_local bool const precise = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
  static_cast<void>(precise);
  auto const nanoseconds = static_cast<std::int64_t>(std::ceil(wall_s * 1e9));
  timespec const until{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void sleep_until(double wall_s, std::function<void()> const& idle) {
  double pause_s = kShortestPause_s;
  for (double now_s = wall_seconds(); now_s < wall_s; now_s = wall_seconds()) {
    sleep_until(std::min(wall_s, now_s + pause_s));
    double const before_s = wall_seconds();
    idle();
    bool const had_work = wall_seconds() - before_s > kIdleTakes_s;
    pause_s = had_work ? kShortestPause_s : std::min(1.5 * pause_s, kLongestPause_s);
  }
}

}  // namespace

double thread_cpu_seconds() noexcept { return seconds(CLOCK_THREAD_CPUTIME_ID); }
double wall_seconds() noexcept { return seconds(CLOCK_MONOTONIC); }

Pacer::Pacer(double slowdown, std::function<void()> idle) : slowdown_(slowdown), idle_(std::move(idle)) {
  if (!(slowdown >= 0.0) || !std::isfinite(slowdown)) {
    throw InvalidArgument(fmt::format("slowdown must be finite and not negative, found {}", slowdown));
  }
}

double Pacer::run(std::function<void()> const& work) {
  double const start_s = wall_seconds();
  if (slowdown_ == 0.0) {
    work();
  } else {
    double const cpu_start_s = thread_cpu_seconds();
    work();
    double const end_s = start_s + slowdown_ * (thread_cpu_seconds() - cpu_start_s);
    if (idle_) {
      sleep_until(end_s, idle_);
    } else if (wall_seconds() < end_s) {
      sleep_until(end_s);
    }
  }
  double const lasted_s = wall_seconds() - start_s;
  busy_s_ += lasted_s;
  return lasted_s;
}

}  // namespace ballast
