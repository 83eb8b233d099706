// SPDX-License-Identifier: Apache-2.0
/// How all ranks of a job learn, without waiting for ever, how the others ended.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <mpi.h>

namespace ballast::detail {

/// How one rank ended.
struct Outcome {
  bool failed = false;
  bool own = false;     ///< the error arose here; else it came from another rank's report
  int code = 0;         ///< exit code of the error
  std::string message;  ///< of the error
};

/// How all ranks ended.
struct Verdict {
  bool any_failed = false;
  bool alike = false;  ///< every rank failed by itself with the same message
  int speaker = 0;     ///< lowest rank whose own error it was: it prints
  int code = 0;        ///< exit code of the speaker's error
};

/// Minima over all ranks that are waited for only as long as the caller likes. It has a communicator of its own, because
/// after a failure the others may be in the middle of a collective.
class FinalAgreement {
 public:
  /// Collective over the job.
  FinalAgreement();
  FinalAgreement(FinalAgreement const&) = delete;
  FinalAgreement& operator=(FinalAgreement const&) = delete;

  /// Tells the others how this rank ended. Never blocks. @pre called once
  void post(Outcome const& outcome);
  /// Returns how all ranks ended, or nothing if `timeout_s` passed before all of them posted.
  std::optional<Verdict> verdict(double timeout_s);
  /// Returns true if some rank says so (then all do), nothing if not all came here within `timeout_s`.
  std::optional<bool> any(bool here, double timeout_s);

 private:
  using Values = std::array<std::int64_t, 6>;
  void start(Values const& values);
  bool wait(double timeout_s);

  MPI_Comm comm_ = MPI_COMM_NULL;  // freed by MPI_Finalize: a destructor does not communicate
  MPI_Request request_ = MPI_REQUEST_NULL;
  Values mine_{};
  Values least_{};
  bool started_ = false;
};

}  // namespace ballast::detail
