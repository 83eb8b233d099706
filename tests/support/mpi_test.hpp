// SPDX-License-Identifier: Apache-2.0
/// What tests under mpirun share; the main is mpi_main.cpp.
#pragma once

#include "ballast/comm/communicator.hpp"

#include <exception>
#include <string>

#include <gtest/gtest.h>

namespace ballast::test {

/// Returns the communicator over all ranks of the test. Use EXPECT around collectives: an ASSERT that ends the test on
/// one rank leaves the others waiting. An exception that leaves a test is reported to all ranks, which then fail too.
///
/// A test that calls `report_failure` does so on a world of its own (`make_mpi_world`), and keeps the buffers of
/// operations that were cut off in static variables: MPI may write to them until the process ends.
Communicator& world();

/// Runs `work` and returns the message of the error of type `E` that it threw, or what happened instead.
template <class E, class Work>
std::string error_of(Work const& work) {
  try {
    work();
  } catch (E const& error) {
    return error.what();
  } catch (std::exception const& error) {
    return std::string("another type of error: ") + error.what();
  }
  return "no error";
}

}  // namespace ballast::test
