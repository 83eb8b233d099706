// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/discover.hpp"

#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace ballast {
namespace {

/// A description with `num_ranks` devices on nodes of at most two.
ClusterDescription pairs(int num_ranks) {
  ClusterDescription cluster;
  cluster.source = "pairs.toml";
  cluster.within_node = {1e-6, 1e10};
  cluster.between_nodes = {1e-5, 1e9};
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (rank % 2 == 0) cluster.nodes.push_back({"pair" + std::to_string(rank / 2), {}});
    cluster.nodes.back().devices.push_back({rank < 2 ? "large" : "small", 1000 + rank, 1.0 / (1 + rank)});
  }
  return cluster;
}

cpu_set_t allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return set;
}

/// Binds all threads of this process, as mpirun and srun do before it starts; MPI has threads of its own.
void bind_process(cpu_set_t const& cpus) {
  for (auto const& task : std::filesystem::directory_iterator("/proc/self/task")) {
    EXPECT_EQ(sched_setaffinity(std::stoi(task.path().filename().string()), sizeof(cpus), &cpus), 0);
  }
}

/// The `number`-th of the processing units in `all`, counted round.
cpu_set_t one_cpu(cpu_set_t const& all, int number) {
  int const nth = number % CPU_COUNT(&all);
  cpu_set_t one;
  CPU_ZERO(&one);
  int seen = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && seen++ == nth) CPU_SET(cpu, &one);
  }
  return one;
}

/// True when all ranks hold the same text. Collective over `comm`.
bool same_everywhere(Communicator& comm, std::string const& text) {
  auto const texts = all_gather_text(comm, text);
  return std::all_of(texts.begin(), texts.end(), [&](auto const& other) { return other == texts[0]; });
}

TEST(Discover, SeesThisHostAsTheSystemDoes) {
  auto const node = discover_node();

  auto const cpus = allowed_cpus();
  EXPECT_GE(node.cores, 1);
  EXPECT_LE(node.cores, CPU_COUNT(&cpus));
  EXPECT_GE(node.sockets, 1);
  EXPECT_GE(node.numa_nodes, 1);
  EXPECT_GT(node.memory_bytes, 1 << 20);
  auto const physical_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  EXPECT_LE(node.memory_bytes, physical_bytes + (physical_bytes >> 4));
  EXPECT_FALSE(node.host.empty());
}

TEST(Discover, CountsOnlyCoresItMayUse) {
  auto const cpus = allowed_cpus();
  bind_process(one_cpu(cpus, 0));

  auto const bound = discover_node();
  bind_process(cpus);

  EXPECT_EQ(bound.cores, 1);
  EXPECT_EQ(bound.memory_bytes, discover_node().memory_bytes);
}

TEST(Discover, PutsAllRanksOfOneHostOnOneNode) {
  auto const world = make_mpi_world();

  auto const topology = discover(*world, {});

  ASSERT_EQ(topology.nodes.size(), 1U);
  ASSERT_EQ(topology.num_ranks(), world->size());
  EXPECT_FALSE(topology.simulated);
  EXPECT_EQ(topology.dilation, 1.0);
  EXPECT_EQ(topology.nodes[0], discover_node());
  for (auto const& device : topology.devices) {
    EXPECT_EQ(device.node, 0);
    EXPECT_EQ(device.kind, "cpu");
    EXPECT_EQ(device.speed, 1.0);
    double const part = 0.9 * static_cast<double>(topology.nodes[0].memory_bytes) / world->size();
    EXPECT_LE(static_cast<double>(device.memory_bytes), part);
    EXPECT_GT(static_cast<double>(device.memory_bytes), part - (16 << 20));
    EXPECT_EQ(device.memory_bytes % (16 << 20), 0);
  }
  EXPECT_TRUE(same_everywhere(*world, to_json(topology)));
}

TEST(Discover, JoinsTheCoresOfBoundRanks) {
  auto const world = make_mpi_world();
  auto const cpus = allowed_cpus();
  auto const unbound = discover(*world, {});
  bind_process(one_cpu(cpus, world->rank()));

  auto const bound = discover(*world, {});
  bind_process(cpus);

  // As many as there are ranks, unless processing units share a core.
  EXPECT_GE(bound.nodes[0].cores, 1);
  EXPECT_LE(bound.nodes[0].cores, std::min(unbound.nodes[0].cores, world->size()));
  if (unbound.nodes[0].cores == CPU_COUNT(&cpus)) {
    EXPECT_EQ(bound.nodes[0].cores, std::min(unbound.nodes[0].cores, world->size()));
  }
}

TEST(Discover, BelievesADescription) {
  auto const world = make_mpi_world();
  auto const cluster = pairs(world->size());

  auto const topology = discover(*world, cluster);

  EXPECT_TRUE(topology.simulated);
  EXPECT_EQ(topology.num_ranks(), world->size());
  EXPECT_EQ(topology.nodes.size(), cluster.nodes.size());
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(topology.devices[rank], (Device{rank / 2, rank < 2 ? "large" : "small", 1000 + rank, 1.0 / (1 + rank)}));
  }
  auto const host = discover_node();
  EXPECT_EQ(topology.nodes[0].cores, host.cores) << "the description is silent on cores";
  EXPECT_EQ(topology.dilation, std::max(1.0, static_cast<double>(world->size()) / host.cores));
  EXPECT_TRUE(same_everywhere(*world, to_json(topology)));
}

TEST(Discover, RefusesADescriptionOfAnotherSizeOnAllRanks) {
  auto const world = make_mpi_world();

  EXPECT_THROW(discover(*world, pairs(world->size() + 1)), InvalidArgument);
  world->barrier();  // all ranks are still in step
}

TEST(Discover, KeepsToTheNodesOfASimulatedWorld) {
  auto const cluster = pairs(make_mpi_world()->size());
  auto world = make_mpi_world();
  auto const described = discover(*world, cluster);
  auto const simulated = make_simulated(std::move(world), link_delays(cluster, described));

  auto const topology = discover(*simulated, {});

  EXPECT_EQ(topology.nodes.size(), cluster.nodes.size());
  for (int rank = 0; rank < simulated->size(); ++rank) EXPECT_EQ(topology.devices[rank].node, rank / 2);
}

}  // namespace
}  // namespace ballast
