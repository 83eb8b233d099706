// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/collective_profile.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>

namespace ballast {
namespace {

CollectiveProfile small_profile() {
  CollectiveProfile profile;
  profile.measured = true;
  profile.points = {
      // Not in order of bytes: order must not matter.
      {Operation::all_reduce, LinkLevel::node, 4, 4096, 4e-3},
      {Operation::all_reduce, LinkLevel::node, 4, 1024, 1e-3},
      {Operation::all_reduce, LinkLevel::node, 4, 2048, 1.5e-3},
      {Operation::all_reduce, LinkLevel::node, 2, 1024, 0.5e-3},
      {Operation::send, LinkLevel::network, 2, 1000, 1e-4},
      {Operation::send, LinkLevel::network, 2, 3000, 2e-4},
  };
  return profile;
}

Topology flat_topology(int num_nodes, int ranks_per_node) {
  Topology topology;
  for (int node = 0; node < num_nodes; ++node) {
    topology.nodes.push_back({"host" + std::to_string(node), 1, 1, 8, 1 << 30, {}});
    for (int rank = 0; rank < ranks_per_node; ++rank) topology.devices.push_back({node, "cpu", 1 << 20, 1.0});
  }
  return topology;
}

TEST(CollectiveProfile, InterpolatesBetweenPoints) {
  auto const profile = small_profile();

  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 1024), 1e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 1536), 1.25e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 2048), 1.5e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 3072), 2.75e-3);
}

TEST(CollectiveProfile, IsConstantBelowAndProportionalAboveItsPoints) {
  auto const profile = small_profile();

  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 0), 1e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 1), 1e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 4, 8192), 8e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::send, LinkLevel::network, 2, 30'000'000), 2.0);
}

TEST(CollectiveProfile, TakesTheNearestGroupAndScalesByRounds) {
  auto const profile = small_profile();

  // 7 rounds instead of 3; 1 of the pair; 3 ranks are as near to 2 as to 4, and the smaller group counts.
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 8, 1024), 1e-3 * 7 / 3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 2, 1024), 0.5e-3);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::node, 3, 1024), 0.5e-3 * 2);
}

TEST(CollectiveProfile, CostsNothingAlone) {
  EXPECT_EQ(small_profile().seconds(Operation::all_gather, LinkLevel::node, 1, 1 << 20), 0.0);
  EXPECT_EQ(CollectiveProfile{}.seconds(Operation::send, LinkLevel::node, 1, 1), 0.0);
}

TEST(CollectiveProfile, UsesTheOtherLevelWhenOneHasNoPoints) {
  auto const profile = small_profile();

  EXPECT_DOUBLE_EQ(profile.seconds(Operation::send, LinkLevel::node, 2, 2000), 1.5e-4);
  EXPECT_DOUBLE_EQ(profile.seconds(Operation::all_reduce, LinkLevel::network, 4, 1024), 1e-3);
}

TEST(CollectiveProfile, DoesNotScaleMessagesByTheGroup) {
  EXPECT_DOUBLE_EQ(small_profile().seconds(Operation::send, LinkLevel::network, 16, 1000), 1e-4);
}

TEST(CollectiveProfile, RefusesAnOperationWithoutPoints) {
  EXPECT_THROW(small_profile().seconds(Operation::all_gather, LinkLevel::node, 2, 1024), InvalidArgument);
}

TEST(CollectiveProfile, KnowsNcclTestsBandwidths) {
  // nccl-tests, doc/PERFORMANCE.md: 8 ranks, 1 GB in 10 ms are 100 GB/s algbw, all-reduce 175 GB/s busbw.
  CollectivePoint const reduce{Operation::all_reduce, LinkLevel::node, 8, 1'000'000'000, 0.01};
  CollectivePoint const gather{Operation::all_gather, LinkLevel::node, 8, 1'000'000'000, 0.01};
  CollectivePoint const scatter{Operation::reduce_scatter, LinkLevel::node, 8, 1'000'000'000, 0.01};
  CollectivePoint const message{Operation::send, LinkLevel::node, 2, 1'000'000'000, 0.01};

  EXPECT_DOUBLE_EQ(algbw(reduce), 1e11);
  EXPECT_DOUBLE_EQ(busbw(reduce), 1.75e11);
  EXPECT_DOUBLE_EQ(busbw(gather), 0.875e11);
  EXPECT_DOUBLE_EQ(busbw(scatter), 0.875e11);
  EXPECT_DOUBLE_EQ(busbw(message), 1e11);
}

TEST(CollectiveProfile, ComesBackFromJsonAsItWas) {
  auto profile = small_profile();
  profile.points[0].seconds = 1.0 / 3.0 * 1e-5;

  auto const text = to_json(profile);

  EXPECT_EQ(collective_profile_from_json(text, "c.json"), profile);
  EXPECT_EQ(to_json(collective_profile_from_json(text, "c.json")), text);
  EXPECT_EQ(collective_profile_from_json(to_json(CollectiveProfile{}), "c.json"), CollectiveProfile{});
}

TEST(CollectiveProfile, RefusesDamagedJsonAndNamesThePlace) {
  struct Case {
    char const* point;
    char const* expected;
  };
  for (auto const& [point, expected] : {
           Case{R"("operation": "all_to_all", "level": "node", "ranks": 2, "bytes": 8, "seconds": 1)",
                "/points/0/operation"},
           Case{R"("operation": "send", "level": "rack", "ranks": 2, "bytes": 8, "seconds": 1)", "/points/0/level"},
           Case{R"("operation": "send", "level": "node", "ranks": 1, "bytes": 8, "seconds": 1)", "/points/0/ranks"},
           Case{R"("operation": "send", "level": "node", "ranks": 4, "bytes": 8, "seconds": 1)", "/points/0/ranks"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 0, "seconds": 1)", "/points/0/bytes"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": -8, "seconds": 1)", "/points/0/bytes"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8, "seconds": 0)", "/points/0/seconds"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8, "seconds": -1)", "/points/0/seconds"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8, "seconds": null)",
                "/points/0/seconds"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8, "seconds": 1, "x": 1)", "/points/0/x"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8)", "/points/0/seconds"},
           Case{R"("operation": "send", "level": "node", "ranks": 2, "bytes": 8, "seconds": 1}, {"operation": "send",)"
                R"("level": "node", "ranks": 2, "bytes": 8, "seconds": 1)",
                "/points/1/bytes"},
       }) {
    auto const text =
        R"({"schema": "ballast.collectives/1", "measured": true, "points": [{)" + std::string(point) + "}]}";
    try {
      collective_profile_from_json(text, "c.json");
      ADD_FAILURE() << "accepted: " << point;
    } catch (DataError const& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

TEST(DefaultCollectiveProfile, FollowsTheRingFormula) {
  auto const profile = default_collective_profile(flat_topology(2, 4));

  EXPECT_FALSE(profile.measured);
  // Within a node 2 us and 5 GB/s, between nodes 30 us and 1 GB/s; p - 1 rounds of bytes / p, twice for all-reduce.
  double const bytes = 1e6;
  EXPECT_NEAR(profile.seconds(Operation::send, LinkLevel::node, 2, 1'000'000), 2e-6 + bytes / 5e9, 1e-12);
  EXPECT_NEAR(profile.seconds(Operation::all_gather, LinkLevel::node, 4, 1'000'000), 3 * (2e-6 + bytes / 4 / 5e9),
              1e-12);
  EXPECT_NEAR(profile.seconds(Operation::reduce_scatter, LinkLevel::network, 2, 1'000'000), 30e-6 + bytes / 2 / 1e9,
              1e-12);
  EXPECT_NEAR(profile.seconds(Operation::all_reduce, LinkLevel::network, 8, 1'000'000), 14 * (30e-6 + bytes / 8 / 1e9),
              1e-12);
  EXPECT_NEAR(profile.seconds(Operation::all_reduce, LinkLevel::network, 7, 1'000'000), 12 * (30e-6 + bytes / 7 / 1e9),
              1e-12);
}

TEST(DefaultCollectiveProfile, StretchesWithTheDilation) {
  auto topology = flat_topology(2, 2);
  auto const plain = default_collective_profile(topology);
  topology.simulated = true;
  topology.dilation = 3;

  auto const dilated = default_collective_profile(topology);

  EXPECT_NEAR(dilated.seconds(Operation::all_reduce, LinkLevel::network, 4, 1 << 20),
              3 * plain.seconds(Operation::all_reduce, LinkLevel::network, 4, 1 << 20), 1e-12);
}

TEST(DefaultCollectiveProfile, StaysSmallAndAnswersForTenThousandRanks) {
  auto const profile = default_collective_profile(flat_topology(1250, 8));

  EXPECT_LT(profile.points.size(), 1000U);
  EXPECT_NEAR(profile.seconds(Operation::all_gather, LinkLevel::network, 10'000, 1 << 20),
              9999 * (30e-6 + (1 << 20) / 1e4 / 1e9), 1e-9);
  EXPECT_NEAR(profile.seconds(Operation::all_gather, LinkLevel::network, 1250, 1 << 20),
              1249 * (30e-6 + (1 << 20) / 1250.0 / 1e9), 1e-9);
}

TEST(DefaultCollectiveProfile, ComesBackFromJson) {
  auto const profile = default_collective_profile(flat_topology(3, 2));

  EXPECT_EQ(collective_profile_from_json(to_json(profile), "c.json"), profile);
}

TEST(Operation, ComesBackFromItsName) {
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::send}) {
    EXPECT_EQ(parse_operation(to_string(operation)), operation);
  }
  EXPECT_THROW(parse_operation("all_to_all"), DataError);
}

}  // namespace
}  // namespace ballast
