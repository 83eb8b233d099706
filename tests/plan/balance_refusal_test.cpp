// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/plan/balance.hpp"
#include "plan/plan_fixtures.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::batch_of;
using test::flat_collectives;
using test::gpt_like;
using test::make_model;
using test::make_topology;
using test::uniform_model;

constexpr std::int64_t kMib = 1 << 20;

TEST(BalanceRefusal, NamesWhatIsMissingWhenOneLayerIsLargerThanAnyDevice) {
  auto const profile = make_model({{"small", 100, 1.0}, {"giant", 4'000'000, 1.0}, {"tiny", 10, 1.0}});
  auto const topology = make_topology({1}, 16 * kMib);

  try {
    balance(profile, topology, default_collective_profile(topology), batch_of(4));
    ADD_FAILURE() << "64 MB of parameters and states cannot fit into 16 MiB";
  } catch (InfeasiblePlan const& error) {
    std::string const text = error.what();
    EXPECT_NE(text.find("rank 0 of stage 0 (layers small..tiny)"), text.npos) << text;
    EXPECT_NE(text.find("optimizer state"), text.npos) << text;
    EXPECT_NE(text.find("verified by planning again"), text.npos) << text;
    EXPECT_GT(error.missing_bytes(), 64'000'000 - 16 * kMib);
    EXPECT_LT(error.missing_bytes(), 64'100'000 - 16 * kMib);

    auto larger = topology;  // what it asks for is enough
    larger.devices[0].memory_bytes += error.missing_bytes();
    EXPECT_NO_THROW(balance(profile, larger, default_collective_profile(topology), batch_of(4)));
  }
}

TEST(BalanceRefusal, SuggestsWhatWouldFit) {
  auto const profile = gpt_like(6, 128, 1000, 64);
  auto const topology = make_topology({2}, 20 * kMib);
  auto const collectives = default_collective_profile(topology);
  auto const message = [&](BalanceOptions const& options) -> std::string {
    try {
      balance(profile, topology, collectives, options);
      return "it fitted";
    } catch (InfeasiblePlan const& error) {
      return error.what();
    }
  };
  auto options = batch_of(64);
  options.micro_batches = {64};
  EXPECT_NE(message(options).find("another micro-batch size"), std::string::npos) << message(options);

  options = batch_of(64);
  options.num_stages = 1;
  options.group_size = 1;
  EXPECT_NE(message(options).find("left to the balancer"), std::string::npos) << message(options);
}

TEST(BalanceRefusal, RefusesInputThatMakesNoSense) {
  auto const good_profile = uniform_model(4, 1.0, 100);
  auto const good_topology = make_topology({2}, kMib);
  auto const good_options = batch_of(8);
  auto const collectives = flat_collectives(1e-3);
  EXPECT_NO_THROW(balance(good_profile, good_topology, collectives, good_options));
  auto const refused = [&](std::string const& words,
                           std::function<void(ModelProfile&, Topology&, BalanceOptions&)> const& spoil) {
    auto profile = good_profile;
    auto topology = good_topology;
    auto options = good_options;
    spoil(profile, topology, options);
    try {
      balance(profile, topology, collectives, options);
      ADD_FAILURE() << "accepted what should name " << words;
    } catch (InvalidArgument const& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };

  refused("global batch is 0", [](auto&, auto&, auto& o) { o.global_batch = 0; });
  refused("global batch is -8", [](auto&, auto&, auto& o) { o.global_batch = -8; });
  refused("micro-batch of 0 samples", [](auto&, auto&, auto& o) { o.micro_batches = {0, 4}; });
  refused("micro-batch (3, 5) divides the global batch of 8", [](auto&, auto&, auto& o) { o.micro_batches = {3, 5}; });
  refused("no schedule", [](auto&, auto&, auto& o) { o.schedules.clear(); });
  refused("reserve is 1", [](auto&, auto&, auto& o) { o.reserve = 1.0; });
  refused("reserve is nan", [](auto&, auto&, auto& o) { o.reserve = std::nan(""); });
  refused("5 stages are not possible with 4 layers and 2 ranks", [](auto&, auto&, auto& o) { o.num_stages = 5; });
  refused("groups of 3 ranks", [](auto&, auto&, auto& o) { o.group_size = 3; });
  refused("2 stages of 2 ranks", [](auto&, auto&, auto& o) {
    o.num_stages = 2;
    o.group_size = 2;
  });
  refused("no layers", [](auto& p, auto&, auto&) { p.layers.clear(); });
  refused("\"layer1\" has no measured point", [](auto& p, auto&, auto&) { p.layers[1].points.clear(); });
  refused("\"layer2\" at 2 samples: forward_s is nan",
          [](auto& p, auto&, auto&) { p.layers[2].points[1].forward_s = std::nan(""); });
  refused("backward_s is -1", [](auto& p, auto&, auto&) { p.layers[2].points[1].backward_s = -1; });
  refused("2 samples after one of 4",
          [](auto& p, auto&, auto&) { std::swap(p.layers[0].points[1], p.layers[0].points[2]); });
  refused("saved_bytes is -1", [](auto& p, auto&, auto&) { p.layers[0].points[0].saved_bytes = -1; });
  refused("what 8 samples need", [](auto& p, auto&, auto&) {
    p.layers[0].points.resize(1);
    p.layers[0].points[0].saved_bytes = std::int64_t{1} << 49;
  });
  refused("update_s_per_parameter is inf",
          [](auto& p, auto&, auto&) { p.update_s_per_parameter = std::numeric_limits<double>::infinity(); });
  refused("dtype int32", [](auto& p, auto&, auto&) { p.dtype = DataType::int32; });
  refused("no devices", [](auto&, auto& t, auto&) { t.devices.clear(); });
  refused("rank 1 has speed 0", [](auto&, auto& t, auto&) { t.devices[1].speed = 0; });
  refused("memory of rank 1 is -1 bytes", [](auto&, auto& t, auto&) { t.devices[1].memory_bytes = -1; });
  refused("dilation is nan", [](auto&, auto& t, auto&) { t.dilation = std::nan(""); });
}

}  // namespace
}  // namespace ballast
