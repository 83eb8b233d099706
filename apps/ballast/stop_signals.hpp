// SPDX-License-Identifier: Apache-2.0
/// SIGUSR1 and SIGTERM as a wish to stop after the running step.
#pragma once

#include <csignal>

namespace ballast {

/// Catches SIGUSR1 and SIGTERM while it lives; one at a time.
class StopSignals {
 public:
  StopSignals() {
    requested_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { requested_ = 1; };
    action.sa_flags = SA_RESTART;  // a signal must not break a write
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, &old_user_);
    sigaction(SIGTERM, &action, &old_terminate_);
  }
  ~StopSignals() {
    sigaction(SIGUSR1, &old_user_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
  }
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;

  /// True once this process got one of the signals.
  bool requested() const noexcept { return requested_ != 0; }

 private:
  static inline std::sig_atomic_t volatile requested_ = 0;  // a handler reaches nothing else
  struct sigaction old_user_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace ballast
