// SPDX-License-Identifier: Apache-2.0
// The main of tests under mpirun: all ranks run the same tests in the same order; rank 0 prints the usual report, the
// others their failures only, and every rank's exit code is a failure if any rank failed.
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "mpi_test.hpp"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include <mpi.h>

namespace ballast::test {
namespace {

std::unique_ptr<Communicator> the_world;

class RankListener : public testing::EmptyTestEventListener {
  void OnTestPartResult(testing::TestPartResult const& result) override {
    if (!result.failed()) return;
    std::string const message = result.message();
    if (world().rank() != 0) {
      std::cerr << "[rank " << world().rank() << "] " << (result.file_name() ? result.file_name() : "") << ":"
                << result.line_number() << ": " << message << std::endl;
    }
    // The test ended early on this rank only; the others would wait for it until the timeout.
    if (message.find("C++ exception") == 0) world().report_failure(ErrorKind::failed, message);
  }
};

int run_all_tests() {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world().rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankListener);
  std::int64_t failed = RUN_ALL_TESTS();
  try {
    failed = all_reduce_value(world(), failed, ReduceOperation::max);
  } catch (Error const&) {  // an exception left a test on some rank
    failed = 1;
  }
  return static_cast<int>(failed);
}

}  // namespace

Communicator& world() { return *the_world; }

}  // namespace ballast::test

int main(int argc, char** argv) {
  ballast::MpiSession session(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  ballast::test::the_world = ballast::make_mpi_world();
  int const exit_code = ballast::test::run_all_tests();
  ballast::test::the_world.reset();
  // Not left to the session, which does not finalize after a failure; tests of failures keep their buffers.
  MPI_Finalize();
  return exit_code;
}
