// SPDX-License-Identifier: Apache-2.0
/// Small blocking collectives on values, and the agreement of ranks on errors.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "ballast/comm/communicator.hpp"

namespace ballast {

/// All ranks throw or none: every rank passes its own error (or null); if any is set, all ranks throw the error of the
/// lowest failing rank. Its message ends with the list of failing ranks unless all ranks failed with the same message.
/// Messages are cut at 16 KiB. Collective over `comm`.
void agree(Communicator& comm, std::exception_ptr const& error);

/// Runs `work` on this rank, then agrees on what it threw. Collective over `comm`; `work` must not communicate.
void collectively(Communicator& comm, std::function<void()> const& work);

/// Returns root's text on all ranks. Collective over `comm`.
std::string broadcast_text(Communicator& comm, std::string text, int root);
/// Returns every rank's text, in rank order, on all ranks. Collective over `comm`.
std::vector<std::string> all_gather_text(Communicator& comm, std::string const& text);
/// Returns every rank's number, in rank order, on all ranks. Collective over `comm`.
std::vector<double> all_gather_value(Communicator& comm, double value);
std::vector<std::int64_t> all_gather_value(Communicator& comm, std::int64_t value);
/// Returns the reduction over all ranks. Collective over `comm`.
double all_reduce_value(Communicator& comm, double value, ReduceOperation operation);
std::int64_t all_reduce_value(Communicator& comm, std::int64_t value, ReduceOperation operation);

}  // namespace ballast
