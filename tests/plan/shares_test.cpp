// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/shares.hpp"

#include "ballast/base/error.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using Shares = std::vector<std::int64_t>;

TEST(Shares, CutsAtTheExactProportionRoundedDownToSixteenBytes) {
  EXPECT_EQ(shard_intervals(100, Shares{3, 1}, 4), (std::vector<Interval>{{0, 72}, {72, 100}}));
  EXPECT_EQ(shard_intervals(100, Shares{1, 1}, 8), (std::vector<Interval>{{0, 50}, {50, 100}}));
  EXPECT_EQ(shard_intervals(100, Shares{1, 1}, 2), (std::vector<Interval>{{0, 48}, {48, 100}}));
}

TEST(Shares, GivesNothingToAShareOfZeroWhereverItStands) {
  EXPECT_EQ(shard_intervals(64, Shares{0, 1, 0, 1, 0}, 4),
            (std::vector<Interval>{{0, 0}, {0, 32}, {32, 32}, {32, 64}, {64, 64}}));
}

TEST(Shares, LeavesALayerSmallerThanTheAlignmentToTheLastRank) {
  EXPECT_EQ(shard_intervals(3, Shares{1, 1}, 4), (std::vector<Interval>{{0, 0}, {0, 3}}));
  EXPECT_EQ(shard_intervals(0, Shares{1, 1}, 4), (std::vector<Interval>{{0, 0}, {0, 0}}));
}

TEST(Shares, CoversEveryElementOnceForRandomShares) {
  std::mt19937_64 generator(11);
  for (int number = 0; number < 2000; ++number) {
    SCOPED_TRACE("seed 11, case " + std::to_string(number));
    Shares shares;
    for (auto count = generator() % 6 + 1; count > 0; --count) {
      shares.push_back(generator() % 3 == 0 ? 0 : static_cast<std::int64_t>(generator() >> (generator() % 60 + 2)));
    }
    if (std::all_of(shares.begin(), shares.end(), [](auto share) { return share == 0; })) shares[0] = 1;
    auto const elements = static_cast<std::int64_t>(generator() >> (generator() % 50 + 10));
    std::int64_t const bytes = std::int64_t{1} << generator() % 4;

    auto const intervals = shard_intervals(elements, shares, bytes);

    ASSERT_EQ(intervals.size(), shares.size());
    std::int64_t expected = 0;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      EXPECT_EQ(intervals[rank].begin, expected);
      EXPECT_GE(intervals[rank].size(), 0);
      if (shares[rank] == 0) {
        EXPECT_EQ(intervals[rank].size(), 0);
      }
      if (intervals[rank].end != elements) {
        EXPECT_EQ(intervals[rank].end * bytes % kShardAlignmentBytes, 0);
      }
      expected = intervals[rank].end;
    }
    EXPECT_EQ(expected, elements);
  }
}

TEST(Shares, RefusesSharesThatNobodyCanKeep) {
  EXPECT_THROW(shard_intervals(10, Shares{0, 0}, 4), InvalidArgument);
  EXPECT_THROW(shard_intervals(10, Shares{}, 4), InvalidArgument);
  EXPECT_THROW(shard_intervals(10, Shares{2, -1}, 4), InvalidArgument);
  EXPECT_THROW(shard_intervals(-1, Shares{1}, 4), InvalidArgument);
}

TEST(Shares, TurnsBatchSharesIntoRunningSums) {
  EXPECT_EQ(batch_intervals(Shares{3, 0, 1}), (std::vector<Interval>{{0, 3}, {3, 3}, {3, 4}}));
}

TEST(Shares, IntersectsIntervals) {
  EXPECT_EQ(intersect({0, 4}, {2, 6}), (Interval{2, 4}));
  EXPECT_EQ(intersect({0, 2}, {2, 6}).size(), 0);
  EXPECT_EQ(intersect({0, 2}, {4, 6}).size(), 0);
  EXPECT_EQ(intersect({4, 6}, {0, 2}).size(), 0);
}

TEST(Shares, ApportionsByLargestRemainders) {
  EXPECT_EQ(apportion(10, std::vector<double>{1, 1, 1}), (Shares{4, 3, 3})) << "ties go to the lower index";
  EXPECT_EQ(apportion(7, std::vector<double>{2, 1}), (Shares{5, 2}));
  EXPECT_EQ(apportion(3, std::vector<double>{0, 1, 0}), (Shares{0, 3, 0}));
  EXPECT_EQ(apportion(0, std::vector<double>{0, 0}), (Shares{0, 0}));
  EXPECT_EQ(apportion(1, std::vector<double>{0.1, 0.2, 0.15}), (Shares{0, 1, 0}));
}

TEST(Shares, ApportionsAllOfATotalWithinOneOfTheQuota) {
  std::mt19937 generator(12);
  std::uniform_real_distribution<double> weight(0.0, 5.0);
  for (int number = 0; number < 2000; ++number) {
    SCOPED_TRACE("seed 12, case " + std::to_string(number));
    std::vector<double> weights(generator() % 7 + 1);
    for (auto& value : weights) value = weight(generator);
    auto const total = static_cast<std::int64_t>(generator() % 1000);

    auto const parts = apportion(total, weights);

    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), total);
    double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t index = 0; index < parts.size(); ++index) {
      EXPECT_LT(std::abs(static_cast<double>(parts[index]) - static_cast<double>(total) * weights[index] / sum),
                1.0 + 1e-9);
    }
  }
}

TEST(Shares, RefusesWeightsThatMakeNoSense) {
  EXPECT_THROW(apportion(1, std::vector<double>{0, 0}), InvalidArgument);
  EXPECT_THROW(apportion(1, std::vector<double>{}), InvalidArgument);
  EXPECT_THROW(apportion(1, std::vector<double>{-1, 2}), InvalidArgument);
  EXPECT_THROW(apportion(1, std::vector<double>{std::nan("")}), InvalidArgument);
  EXPECT_THROW(apportion(1, std::vector<double>{std::numeric_limits<double>::infinity()}), InvalidArgument);
  EXPECT_THROW(apportion(-1, std::vector<double>{1}), InvalidArgument);
}

}  // namespace
}  // namespace ballast
