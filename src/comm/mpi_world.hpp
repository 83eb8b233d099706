// SPDX-License-Identifier: Apache-2.0
/// What all MPI communicators of a job share: the failure channel, the way to wait, and reused buffers.
#pragma once

#include "ballast/base/error.hpp"
#include "ballast/comm/request.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

namespace ballast::detail {

/// Throws CommunicationError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, char const* call);

#define BALLAST_CHECK_MPI(call) ::ballast::detail::check_mpi((call), #call)

class MpiWorld;

/// A started communication that advances when it is polled.
class MpiOperation : public RequestState {
 public:
  explicit MpiOperation(std::shared_ptr<MpiWorld> world) : world_(std::move(world)) {}
  /// Never waits. An operation that is not complete is abandoned: MPI may still use its buffers.
  ~MpiOperation() override;

  void wait() final;
  /// Moves on as far as it can without blocking. An error is kept for `wait`.
  void progress() noexcept;
  /// True when complete. @throws the error that `progress` met.
  bool is_complete() const;

 protected:
  /// Returns true when nothing is left to do. Called until it does.
  virtual bool advance() = 0;
  bool has_completed() const noexcept { return complete_; }
  MpiWorld& world() const noexcept { return *world_; }

 private:
  std::shared_ptr<MpiWorld> world_;
  bool complete_ = false;
  std::exception_ptr error_;
};

/// The state of the job on this rank.
///
/// Shared by all communicators made from one world and by their requests, because any of them may be the last to go,
/// and a failure seen by one must be seen by all: one of the few places where ownership is really shared.
class MpiWorld {
 public:
  explicit MpiWorld(std::int64_t max_count);
  ~MpiWorld();
  MpiWorld(MpiWorld const&) = delete;
  MpiWorld& operator=(MpiWorld const&) = delete;

  std::int64_t max_count() const noexcept { return max_count_; }

  /// Polls until `operation` is complete: yields the core at first, then sleeps in growing steps, because there may be
  /// more ranks than cores. @throws what another rank reported.
  void wait_for(MpiOperation& operation);

  void report_failure(ErrorKind kind, std::string const& message) noexcept;
  void check_failure();
  /// @throws the failure if one is known already; looks at no message.
  void throw_known_failure() const;

  /// Operations of several phases: every wait on this rank advances all of them, so that ranks may wait for their
  /// operations in any order.
  void add_phased(MpiOperation* operation) { phased_.push_back(operation); }
  void remove_phased(MpiOperation* operation) noexcept { std::erase(phased_, operation); }

  /// Buffers of at least `bytes`, reused: touching fresh pages costs more than the sums that are made in them.
  std::vector<std::byte> take_buffer(std::size_t bytes);
  void give_buffer(std::vector<std::byte> buffer) { buffers_.push_back(std::move(buffer)); }

 private:
  struct Failure {
    ErrorKind kind;
    std::string message;
  };
  struct SentReport;

  std::int64_t max_count_;
  MPI_Comm failures_ = MPI_COMM_NULL;
  std::optional<Failure> failure_;
  std::unique_ptr<SentReport> sent_report_;
  std::vector<MpiOperation*> phased_;
  std::vector<std::vector<std::byte>> buffers_;
};

/// True once a failure was reported to or by this process; MPI must not be finalized then.
bool job_has_failed() noexcept;

}  // namespace ballast::detail
