// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/description.hpp"

#include "ballast/base/error.hpp"
#include "support/text.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::replaced;

constexpr char const* kTwoNodes = R"(schema = "ballast.cluster/1"
dilation = 2.5
[links]
node    = { latency = "5us",  bandwidth = "4GB/s" }
network = { latency = "50us", bandwidth = "400MB/s" }
[[node]]
name = "big"
devices = [ { kind = "large", memory = "64MiB", speed = 1.0, count = 2 } ]
[[node]]
devices = [ { memory = 1000, speed = 1 }, { kind = "slow", memory = "1KiB", speed = 0.25 } ]
)";

TEST(ClusterFile, SaysNodesDevicesAndLinks) {
  auto const cluster = parse_cluster(kTwoNodes, "c.toml");

  EXPECT_EQ(cluster.source, "c.toml");
  EXPECT_EQ(cluster.num_ranks(), 4);
  EXPECT_EQ(cluster.dilation, 2.5);
  EXPECT_DOUBLE_EQ(cluster.within_node.latency_s, 5e-6);
  EXPECT_DOUBLE_EQ(cluster.within_node.bytes_per_s, 4e9);
  EXPECT_DOUBLE_EQ(cluster.between_nodes.latency_s, 50e-6);
  EXPECT_DOUBLE_EQ(cluster.between_nodes.bytes_per_s, 400e6);
  DescribedDevice const large{"large", 64 << 20, 1.0};
  std::vector<DescribedNode> const nodes = {{"big", {large, large}},
                                            {"node1", {{"device", 1000, 1.0}, {"slow", 1024, 0.25}}}};
  EXPECT_EQ(cluster.nodes, nodes);
}

TEST(ClusterFile, RefusesMistakesAndNamesLineAndKey) {
  struct Case {
    char const* old;
    char const* by;
    char const* place;
    char const* key;
  };
  constexpr char const* large = R"([ { kind = "large", memory = "64MiB", speed = 1.0, count = 2 } ])";
  for (auto const& [old, by, place, key] : {
           Case{"ballast.cluster/1", "ballast.cluster/9", "c.toml:1:", "schema"},
           Case{"schema = \"ballast.cluster/1\"\n", "", "c.toml:1:", "schema"},
           Case{"dilation = 2.5", "dilation = 0", "c.toml:2:", "dilation"},
           Case{"dilation = 2.5", "dilation = -1.0", "c.toml:2:", "dilation"},
           Case{"dilation = 2.5", "dilation = nan", "c.toml:2:", "dilation"},
           Case{"dilation = 2.5", "dilation = inf", "c.toml:2:", "dilation"},
           Case{"dilation = 2.5", "dilatation = 2.5", "c.toml:2:", "dilatation"},
           Case{"dilation = 2.5", "dilation = ", "c.toml:2:", "TOML"},
           Case{"latency = \"5us\",  ", "", "c.toml:4:", "latency"},
           Case{"latency = \"5us\"", "latency = \"-5us\"", "c.toml:4:", "latency"},
           Case{"latency = \"5us\"", "latency = nan", "c.toml:4:", "latency"},
           Case{"bandwidth = \"4GB/s\"", "bandwidth = 0", "c.toml:4:", "bandwidth"},
           Case{"bandwidth = \"4GB/s\"", "bandwidth = \"4GB\"", "c.toml:4:", "bandwidth"},
           Case{"bandwidth = \"4GB/s\"", "bandwith = 4", "c.toml:4:", "bandwidth"},
           Case{"network = {", "wan = {", "c.toml:3:", "network"},
           Case{"[links]", "[link]", "c.toml", "links"},
           Case{large, "[]", "c.toml:", "devices"},
           Case{large, "7", "c.toml:8:", "devices"},
           Case{large, "[ { kind = \"large\" } ]", "c.toml:8:", "memory"},
           Case{"memory = \"64MiB\"", "memory = 0", "c.toml:8:", "memory"},
           Case{"memory = \"64MiB\"", "memory = -1", "c.toml:8:", "memory"},
           Case{"memory = \"64MiB\"", "memory = \"much\"", "c.toml:8:", "memory"},
           Case{"memory = \"64MiB\"", "memory = 1.5", "c.toml:8:", "memory"},
           Case{"speed = 1.0", "speed = 0", "c.toml:8:", "speed"},
           Case{"speed = 1.0", "speed = -1", "c.toml:8:", "speed"},
           Case{"speed = 1.0", "speed = nan", "c.toml:8:", "speed"},
           Case{"speed = 1.0", "speed = inf", "c.toml:8:", "speed"},
           Case{"count = 2", "count = 0", "c.toml:8:", "count"},
           Case{"count = 2", "count = 9223372036854775807", "c.toml:8:", "count"},
           Case{"count = 2", "number = 2", "c.toml:8:", "number"},
           Case{"kind = \"large\"", "kind = 7", "c.toml:8:", "kind"},
           Case{"name = \"big\"", "name = \"node1\"", "c.toml:", "name"},
           Case{"name = \"big\"", "nam = \"big\"", "c.toml:7:", "nam"},
       }) {
    try {
      parse_cluster(replaced(kTwoNodes, old, by), "c.toml");
      ADD_FAILURE() << "accepted: " << by;
    } catch (InvalidArgument const& error) {
      std::string const message = error.what();
      EXPECT_TRUE(message.starts_with(place)) << by << " gave: " << message;
      EXPECT_NE(message.find(key), std::string::npos) << by << " gave: " << message;
    }
  }
}

TEST(ClusterFile, RefusesAClusterWithoutNodes) {
  auto const text = std::string(kTwoNodes);

  EXPECT_THROW(parse_cluster(text.substr(0, text.find("[[node]]")), "c.toml"), InvalidArgument);
}

TEST(ClusterFile, RefusesAMissingFile) {
  EXPECT_THROW(read_cluster_file("/nonexistent/cluster.toml"), InvalidArgument);
}

TEST(DescribedTopology, NumbersRanksThroughNodesAndDevices) {
  auto const cluster = parse_cluster(kTwoNodes, "c.toml");

  auto const topology = described_topology(cluster, 4, 2);

  EXPECT_TRUE(topology.simulated);
  EXPECT_EQ(topology.dilation, 2.5);
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[0].host, "big");
  EXPECT_EQ(topology.nodes[0].memory_bytes, 128 << 20);
  std::vector<Device> const devices = {
      {0, "large", 64 << 20, 1.0}, {0, "large", 64 << 20, 1.0}, {1, "device", 1000, 1.0}, {1, "slow", 1024, 0.25}};
  EXPECT_EQ(topology.devices, devices);
}

TEST(DescribedTopology, ChoosesTheDilationFromRanksAndCores) {
  auto cluster = parse_cluster(kTwoNodes, "c.toml");
  cluster.dilation = 0;

  EXPECT_EQ(described_topology(cluster, 4, 1).dilation, 4.0);
  EXPECT_EQ(described_topology(cluster, 4, 3).dilation, 4.0 / 3.0);
  EXPECT_EQ(described_topology(cluster, 4, 64).dilation, 1.0);
}

TEST(DescribedTopology, RefusesAnotherNumberOfRanks) {
  auto const cluster = parse_cluster(kTwoNodes, "c.toml");

  try {
    described_topology(cluster, 3, 2);
    ADD_FAILURE() << "accepted";
  } catch (InvalidArgument const& error) {
    std::string const message = error.what();
    EXPECT_NE(message.find("c.toml"), std::string::npos) << message;
    EXPECT_NE(message.find('3'), std::string::npos) << message;
    EXPECT_NE(message.find('4'), std::string::npos) << message;
  }
}

TEST(DescribedTopology, SumsMemoryWithoutOverflow) {
  auto cluster = parse_cluster(kTwoNodes, "c.toml");
  for (auto& device : cluster.nodes[0].devices) device.memory_bytes = std::numeric_limits<std::int64_t>::max();

  EXPECT_EQ(described_topology(cluster, 4, 2).nodes[0].memory_bytes, std::numeric_limits<std::int64_t>::max());
}

TEST(DescribedTopology, GivesTheLinksTheirDelays) {
  auto const cluster = parse_cluster(kTwoNodes, "c.toml");

  auto const delays = link_delays(cluster, described_topology(cluster, 4, 2));

  EXPECT_EQ(delays.node_of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(delays.within_node, cluster.within_node);
  EXPECT_EQ(delays.between_nodes, cluster.between_nodes);
  EXPECT_EQ(delays.dilation, 2.5);
}

}  // namespace
}  // namespace ballast
