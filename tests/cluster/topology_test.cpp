// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/topology.hpp"

#include "ballast/base/error.hpp"
#include "support/text.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::replaced;

Topology two_nodes() {
  Topology topology;
  topology.nodes = {{"alpha", 2, 4, 64, 1 << 30, {"NVIDIA H200", "NVIDIA H200"}}, {"beta \"b\"", 1, 1, 8, 1 << 28, {}}};
  topology.devices = {{0, "large", 1 << 29, 1.0}, {0, "large", 1 << 29, 1.0}, {1, "small", 1 << 27, 0.1}};
  topology.simulated = true;
  topology.dilation = 1.5;
  return topology;
}

std::string refusal(std::string const& text) {
  try {
    topology_from_json(text, "topology.json");
  } catch (DataError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Topology, ComesBackFromJsonAsItWas) {
  auto const topology = two_nodes();

  auto const text = to_json(topology);

  EXPECT_EQ(topology_from_json(text, "topology.json"), topology);
  EXPECT_EQ(to_json(topology_from_json(text, "topology.json")), text);
}

TEST(Topology, KeepsSpeedsToTheLastBit) {
  auto topology = two_nodes();
  topology.devices[2].speed = std::nextafter(1.0 / 3.0, 1.0);
  topology.devices[1].speed = std::numeric_limits<double>::denorm_min();

  EXPECT_EQ(topology_from_json(to_json(topology), "topology.json"), topology);
}

TEST(Topology, RefusesDamagedJsonAndNamesThePlace) {
  struct Case {
    char const* old;
    char const* by;
    char const* expected;
  };
  auto const text = to_json(two_nodes());
  for (auto const& [old, by, expected] : {
           Case{"ballast.topology/1", "ballast.topology/2", "/schema"},
           Case{"\"simulated\": true", "\"simulated\": 1", "/simulated"},
           Case{"\"dilation\": 1.5", "\"dilation\": 0", "/dilation"},
           Case{"\"dilation\": 1.5", "\"dilation\": -1", "/dilation"},
           Case{"\"dilation\": 1.5", "\"dilation\": 1e999", "not JSON"},
           Case{"\"dilation\": 1.5", "\"dilation\": NaN", "not JSON"},
           Case{"\"sockets\": 2", "\"sockets\": 0", "/nodes/0/sockets"},
           Case{"\"cores\": 64", "\"cores\": 4294967297", "/nodes/0/cores"},
           Case{"\"memory_bytes\": 536870912", "\"memory_bytes\": -1", "/devices/0/memory_bytes"},
           Case{"\"memory_bytes\": 536870912", "\"memory_bytes\": 1.5", "/devices/0/memory_bytes"},
           Case{"\"node\": 1", "\"node\": 2", "/devices/2/node"},
           Case{"\"node\": 1", "\"node\": -1", "/devices/2/node"},
           Case{"\"speed\": 0.1", "\"speed\": 0.0", "/devices/2/speed"},
           Case{"\"speed\": 0.1", "\"speed\": \"fast\"", "/devices/2/speed"},
           Case{"\"kind\": \"small\"", "\"kind\": null", "/devices/2/kind"},
           Case{"\"kind\": \"small\"", "\"colour\": \"red\", \"kind\": \"small\"", "colour"},
           Case{"\"host\": \"alpha\"", "\"hots\": \"alpha\"", "/nodes/0/host"},
           Case{"\"simulated\"", "\"more\": 1, \"simulated\"", "/more"},
           Case{"\"gpus\": [", "\"gpus\": [7, ", "/nodes/0/gpus/0"},
       }) {
    auto const message = refusal(replaced(text, old, by));
    EXPECT_NE(message.find(expected), std::string::npos) << by << " gave: " << message;
    EXPECT_TRUE(message.starts_with("topology.json")) << message;
  }
}

TEST(Topology, RefusesNothingAndHalfOfEverything) {
  auto const text = to_json(two_nodes());

  for (auto const* none : {"", "null", "[]", "{}", "7", "{\"schema\":\"ballast.topology/1\"}"}) {
    EXPECT_NE(refusal(none), "accepted") << none;
  }
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_NE(refusal(text.substr(0, length)), "accepted") << length;
  }
  EXPECT_NE(
      refusal(R"({"schema": "ballast.topology/1", "simulated": false, "dilation": 1, "nodes": [], "devices": []})"),
      "accepted");
}

TEST(Topology, MeetsOnANodeOrOnTheNetwork) {
  auto const topology = two_nodes();

  EXPECT_EQ(topology.level({0, 1}), LinkLevel::node);
  EXPECT_EQ(topology.level({2}), LinkLevel::node);
  EXPECT_EQ(topology.level({}), LinkLevel::node);
  EXPECT_EQ(topology.level({0, 1, 2}), LinkLevel::network);
  EXPECT_EQ(topology.level({1, 2}), LinkLevel::network);
  EXPECT_THROW(topology.level({0, 3}), InvalidArgument);
  EXPECT_THROW(topology.level({-1}), InvalidArgument);
}

TEST(Topology, FingerprintsWhatPlansDependOnAndNothingElse) {
  auto const original = two_nodes();

  auto renamed = original;
  renamed.nodes[0].host = "gamma";
  renamed.nodes[0].cores = 1;
  renamed.dilation = 3;
  EXPECT_EQ(fingerprint(renamed), fingerprint(original));
  EXPECT_EQ(fingerprint(original).size(), 32U);

  auto moved = original;
  moved.devices[1].node = 1;
  EXPECT_NE(fingerprint(moved), fingerprint(original));
  auto smaller = original;
  smaller.devices[1].memory_bytes -= 1;
  EXPECT_NE(fingerprint(smaller), fingerprint(original));
  auto faster = original;
  faster.devices[1].speed = std::nextafter(1.0, 2.0);
  EXPECT_NE(fingerprint(faster), fingerprint(original));
  auto other = original;
  other.devices[1].kind = "Large";
  EXPECT_NE(fingerprint(other), fingerprint(original));
}

TEST(LinkLevel, ComesBackFromItsName) {
  EXPECT_EQ(parse_link_level(to_string(LinkLevel::node)), LinkLevel::node);
  EXPECT_EQ(parse_link_level(to_string(LinkLevel::network)), LinkLevel::network);
  EXPECT_THROW(parse_link_level("rack"), DataError);
}

}  // namespace
}  // namespace ballast
