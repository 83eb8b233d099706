// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/simulated.hpp"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(RingSeconds, IsStepsTimesLatencyPlusAShareOfTheBytes) {
  LinkSpeed const link{1e-3, 1e6};

  EXPECT_DOUBLE_EQ(ring_seconds(link, 4, 3, 8000), 3 * (1e-3 + 2e-3));  // all-gather of 4 ranks
  EXPECT_DOUBLE_EQ(ring_seconds(link, 4, 6, 8000), 6 * (1e-3 + 2e-3));  // all-reduce
  EXPECT_DOUBLE_EQ(ring_seconds(link, 1, 2, 8000), 2 * (1e-3 + 8e-3));  // broadcast over a tree
  EXPECT_DOUBLE_EQ(ring_seconds(link, 2, 0, 8000), 0.0);
}

}  // namespace
}  // namespace ballast
