// SPDX-License-Identifier: Apache-2.0
/// A started communication.
#pragma once

#include <memory>
#include <utility>

namespace ballast {

/// What a back end keeps for an operation that has been started.
class RequestState {
 public:
  virtual ~RequestState() = default;
  virtual void wait() = 0;
  virtual void synchronize() { wait(); }
};

/// A communication that was started and must be waited for before its buffers are touched.
/// Move-only; an empty one is complete. Destroying one that is not complete is a programmer's error,
/// tolerated only while an exception unwinds (no destructor communicates).
class Request {
 public:
  Request() = default;
  explicit Request(std::unique_ptr<RequestState> state) : state_(std::move(state)) {}

  bool empty() const noexcept { return state_ == nullptr; }

  /// Orders what follows after the operation: the host on MPI, the stream on NCCL. @throws CommunicationError,
  /// or the error that another rank reported through `Communicator::report_failure`.
  void wait() {
    if (auto state = std::move(state_)) state->wait();
  }
  /// Blocks the host until the operation is complete. @throws as `wait`.
  void synchronize() {
    if (auto state = std::move(state_)) state->synchronize();
  }

 private:
  std::unique_ptr<RequestState> state_;
};

}  // namespace ballast
