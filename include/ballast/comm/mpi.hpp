// SPDX-License-Identifier: Apache-2.0
/// The MPI back end. `mpi.h` stays out of this header.
#pragma once

#include <cstdint>
#include <memory>

#include "ballast/comm/communicator.hpp"

namespace ballast {

/// Owns MPI_Init and MPI_Finalize. One per process, the first local in `main`; move is not needed, so it has none.
///
/// After a failure was reported on any rank the destructor does not finalize: MPI may still write to buffers that an
/// exception has freed, and peers may never come. The launcher then ends the job with an error, as `abort` does at
/// once.
class MpiSession {
 public:
  /// Starts MPI unless the caller already did (then leaves finalizing to him). @throws CommunicationError.
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;

  /// Ends the whole job at once with `code`; for `run_main` after a failure that leaves peers in a collective.
  [[noreturn]] void abort(int code) noexcept;

 private:
  bool owner_ = false;
};

/// Returns a communicator over all ranks of the job, on a duplicate of MPI_COMM_WORLD with errors returned.
/// Counts above `max_count` elements are split; tests lower it. Collective over the job.
/// All communicators of the job are used by one thread at a time (MPI_THREAD_SERIALIZED).
/// @pre an `MpiSession` lives, also while the communicator does
std::unique_ptr<Communicator> make_mpi_world(std::int64_t max_count = std::int64_t{1} << 30);

/// Returns true when the process was started by mpirun, srun or another MPI launcher with more than this process known.
bool launched_by_mpi() noexcept;

}  // namespace ballast
