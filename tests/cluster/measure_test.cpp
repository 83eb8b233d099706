// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/measure.hpp"

#include "ballast/cluster/description.hpp"
#include "ballast/cluster/discover.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/simulated.hpp"
#include "support/mpi_test.hpp"

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace ballast {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Nodes of two ranks with links slow enough to stand out of a machine's noise.
ClusterDescription slow_pairs(int num_ranks) {
  ClusterDescription cluster;
  cluster.source = "slow.toml";
  cluster.within_node = {0.5e-3, 100e6};
  cluster.between_nodes = {1e-3, 20e6};
  cluster.dilation = 2.0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (rank % 2 == 0) cluster.nodes.push_back({"pair" + std::to_string(rank / 2), {}});
    cluster.nodes.back().devices.push_back({"cpu", 1 << 20, 1.0});
  }
  return cluster;
}

void expect_sane(CollectiveProfile const& profile, Communicator& world) {
  EXPECT_TRUE(profile.measured);
  for (auto const& point : profile.points) {
    EXPECT_TRUE(std::isfinite(point.seconds));
    EXPECT_GT(point.seconds, 0);
    EXPECT_GT(point.bytes, 0);
    EXPECT_LE(point.ranks, world.size());
  }
  EXPECT_EQ(collective_profile_from_json(to_json(profile), "measured"), profile) << "no point may stand there twice";
  auto const texts = all_gather_text(world, to_json(profile));
  for (auto const& text : texts) EXPECT_EQ(text, texts[0]) << "all ranks must hold the same";
}

TEST(MeasureCollectives, CoversAllOperationsWithinItsBudget) {
  auto const world = make_mpi_world();
  auto const topology = discover(*world, {});
  MeasureOptions const options{1.0, 1024, 4 << 20};

  auto const start = std::chrono::steady_clock::now();
  auto const profile = measure_collectives(*world, topology, options);
  double const elapsed_s = seconds_since(start);

  EXPECT_LT(elapsed_s, 2 * options.budget_s);
  expect_sane(profile, *world);
  std::set<Operation> operations;
  for (auto const& point : profile.points) {
    operations.insert(point.operation);
    EXPECT_EQ(point.level, LinkLevel::node);
    EXPECT_EQ(point.ranks, point.operation == Operation::send ? 2 : world->size());
    EXPECT_GE(point.bytes, options.min_bytes);
  }
  EXPECT_EQ(operations.size(), world->size() == 1 ? 0U : 4U);
  EXPECT_EQ(profile.seconds(Operation::all_reduce, LinkLevel::network, 1, 1 << 20), 0.0);
}

TEST(MeasureCollectives, SeesTheLinksOfADescribedCluster) {
  auto world = make_mpi_world();
  if (world->size() < 3) GTEST_SKIP() << "two nodes of two need three ranks";
  auto const cluster = slow_pairs(world->size());
  auto const topology = discover(*world, cluster);
  auto const simulated = make_simulated(std::move(world), link_delays(cluster, topology));
  MeasureOptions const options{4.0, 1024, 256 * 1024};

  auto const start = std::chrono::steady_clock::now();
  auto const profile = measure_collectives(*simulated, topology, options);
  double const elapsed_s = seconds_since(start);

  EXPECT_LT(elapsed_s, 2 * options.budget_s);
  expect_sane(profile, *simulated);
  std::map<std::tuple<Operation, LinkLevel, int>, int> sizes;
  for (auto const& point : profile.points) {
    ++sizes[{point.operation, point.level, point.ranks}];
    auto const& link = point.level == LinkLevel::node ? cluster.within_node : cluster.between_nodes;
    int const steps = point.operation == Operation::all_reduce ? 2 * (point.ranks - 1) : point.ranks - 1;
    double const ring_s = point.operation == Operation::send
                              ? link.latency_s + static_cast<double>(point.bytes) / link.bytes_per_s
                              : ring_seconds(link, point.ranks, steps, point.bytes);
    // Job seconds: dilated. What the machine itself needs comes on top.
    EXPECT_GE(point.seconds, 0.98 * 2.0 * ring_s) << to_string(point.operation) << ' ' << point.bytes;
    EXPECT_LE(point.seconds, 3.0 * 2.0 * ring_s + 20e-3) << to_string(point.operation) << ' ' << point.bytes;
  }
  for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter}) {
    EXPECT_TRUE(sizes.contains({operation, LinkLevel::node, 2}));
    EXPECT_TRUE(sizes.contains({operation, LinkLevel::network, 2}));
    EXPECT_TRUE(sizes.contains({operation, LinkLevel::network, simulated->size()}));
  }
  EXPECT_TRUE(sizes.contains({Operation::send, LinkLevel::node, 2}));
  EXPECT_TRUE(sizes.contains({Operation::send, LinkLevel::network, 2}));
  EXPECT_GT((sizes[{Operation::all_reduce, LinkLevel::network, 2}]), 1) << "more than the smallest size fits";
}

TEST(MeasureCollectives, MeasuresTheSmallestSizeWhateverTheBudget) {
  auto const world = make_mpi_world();
  auto const topology = discover(*world, {});

  auto const profile = measure_collectives(*world, topology, {1e-6, 1000, 1 << 20});

  expect_sane(profile, *world);
  EXPECT_EQ(profile.points.size(), world->size() == 1 ? 0U : 4U);
  for (auto const& point : profile.points) EXPECT_LT(point.bytes, 1100);
}

TEST(MeasureCollectives, RefusesImpossibleOptions) {
  auto const world = make_mpi_world();
  auto const topology = discover(*world, {});
  auto other = topology;
  other.devices.push_back(other.devices[0]);

  EXPECT_THROW(measure_collectives(*world, topology, {0.0, 1024, 2048}), InvalidArgument);
  EXPECT_THROW(measure_collectives(*world, topology, {std::nan(""), 1024, 2048}), InvalidArgument);
  EXPECT_THROW(measure_collectives(*world, topology, {1.0, 0, 2048}), InvalidArgument);
  EXPECT_THROW(measure_collectives(*world, topology, {1.0, 4096, 2048}), InvalidArgument);
  EXPECT_THROW(measure_collectives(*world, other, {1.0, 1024, 2048}), InvalidArgument);
}

}  // namespace
}  // namespace ballast
