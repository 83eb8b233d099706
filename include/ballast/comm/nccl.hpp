// SPDX-License-Identifier: Apache-2.0
/// The NCCL back end: collectives between GPUs, on a stream.
#pragma once

#include <memory>

#include "ballast/comm/communicator.hpp"

namespace ballast {

/// True when this build has NCCL.
bool nccl_compiled() noexcept;

/// Returns a communicator over the ranks of `bootstrap`, each on CUDA device `device`; buffers are device pointers.
/// Its stream is its own; `wait` orders later work of the caller's current stream 0 after the operation by an event,
/// `synchronize` blocks the host. Init is non-blocking and aborts when a peer reports a failure.
/// Messages have no tags in NCCL: between two ranks they match in the order in which both sides start them.
/// bfloat16 sums are refused (InvalidArgument), because NCCL adds in bfloat16. A rank that cannot start NCCL reports
/// that to the job.
/// Collective over `bootstrap`, which must outlive it. @throws NotCompiled, CommunicationError with NCCL's own text.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& bootstrap, int device);

}  // namespace ballast
