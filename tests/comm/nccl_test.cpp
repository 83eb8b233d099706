// SPDX-License-Identifier: Apache-2.0
// What can be said of the NCCL back end without a GPU: it says clearly what is missing, on all ranks.
#include "ballast/comm/nccl.hpp"

#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

namespace ballast {
namespace {

using test::error_of;

TEST(Nccl, ThatIsNotBuiltSaysHowToGetIt) {
  if (nccl_compiled()) GTEST_SKIP() << "this build has NCCL";

  auto const message = error_of<NotCompiled>([] { make_nccl_communicator(test::world(), 0); });

  EXPECT_EQ(message,
            "this build of Ballast has no NCCL; configure with -DBALLAST_WITH_NCCL=ON where CUDA and NCCL are");
}

TEST(Nccl, OnADeviceThatDoesNotExistFailsOnAllRanksWithTheReason) {
  if (!nccl_compiled()) GTEST_SKIP() << "this build has no NCCL";

  auto const message = error_of<CommunicationError>([] { make_nccl_communicator(test::world(), 12345); });

  EXPECT_EQ(message.find("cudaSetDevice failed: "), 0u) << message;
}

}  // namespace
}  // namespace ballast
