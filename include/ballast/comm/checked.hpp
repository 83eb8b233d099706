// SPDX-License-Identifier: Apache-2.0
/// A decorator that compares every collective over the ranks before it starts.
#pragma once

#include <memory>

#include "ballast/comm/communicator.hpp"

namespace ballast {

/// Returns a communicator that forwards to `inner` after all ranks compared a fingerprint of the call (operation,
/// counts, type, root, sequence number). A mismatch throws `CommunicationError` on all ranks, naming who called what;
/// without it Open MPI returns wrong sums in silence. Nothing was started then, so the communicator stays usable.
/// `split` results are checked too. Costs one small all-gather per collective, for which starting a collective waits;
/// so `inner` takes host buffers.
std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner);

}  // namespace ballast
