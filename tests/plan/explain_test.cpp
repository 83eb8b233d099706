// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/explain.hpp"

#include "ballast/plan/balance.hpp"
#include "plan/plan_fixtures.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::make_plan;
using test::make_stage;
using test::make_topology;

std::vector<std::string> lines(std::string const& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

Plan two_stages() {
  auto const profile = test::gpt_like(6, 128, 1000, 64);
  return make_plan(profile, 8, {make_stage(0, 4, {0, 1}, {3, 1}), make_stage(4, 8, {2, 3}, {2, 2})});
}

TEST(Explain, SaysWhoDoesWhatWithoutPredictions) {
  EXPECT_EQ(explain(two_stages()),
            "plan    2 stages x 2 ranks, 8 micro-batches of 4, 1f1b, zero-3\n"
            "stage  ranks  samples  layers\n"
            "0      0,1    3+1      embed..block2\n"
            "1      2,3    2+2      block3..head\n");
}

TEST(Explain, ShowsTimesMemoryAndLimits) {
  auto const profile = test::gpt_like(6, 128, 1000, 64);
  auto topology = make_topology({2, 2}, 32 << 20);
  topology.devices[1].memory_bytes = 48 << 20;
  auto plan = two_stages();
  plan.replicas[0].stages[1].recompute = {4, 5};
  predict(plan, profile, topology, default_collective_profile(topology));

  auto const text = explain(plan);

  EXPECT_NE(text.find("step "), text.npos) << text;
  EXPECT_NE(text.find("bubble "), text.npos) << text;
  EXPECT_EQ(text.find("bound "), text.npos) << "nothing was proven about this plan\n" << text;
  EXPECT_NE(text.find("/ 32.0 MiB"), text.npos) << text;
  EXPECT_NE(text.find("stage 1 recomputes 2 of 4 layers: block3, block4\n"), text.npos) << text;
  EXPECT_NE(text.find("links not measured"), text.npos) << text;
  EXPECT_NE(text.find("GGOO"), text.npos) << text;
  for (auto const& line : lines(text)) {
    EXPECT_LE(line.size(), 100u) << line;
    for (char const letter : line) EXPECT_TRUE(letter >= 32 && letter < 127) << line;
    EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
  }
}

TEST(Explain, DrawsBarsOnOneScaleToTheEndOfMemory) {
  auto plan = make_plan(test::uniform_model(2, 1.0), 1, {make_stage(0, 1, {0}, {1}), make_stage(1, 2, {1}, {1})});
  plan.predictions.step_s = 1;
  plan.predictions.measured_collectives = true;
  plan.predictions.ranks.resize(2);
  plan.predictions.ranks[0].memory.weights = 24 << 20;
  plan.predictions.ranks[0].memory.activations = 12 << 20;
  plan.predictions.ranks[0].memory.capacity = 48 << 20;
  plan.predictions.ranks[1].memory.weights = 36 << 20;  // more than it has
  plan.predictions.ranks[1].memory.capacity = 24 << 20;
  plan.predictions.stages.resize(2);

  auto const text = explain(plan);

  EXPECT_NE(text.find(std::string(24, 'W') + std::string(12, 'A') + std::string(12, '.') + "|"), text.npos) << text;
  EXPECT_NE(text.find(std::string(24, 'W') + "|" + std::string(12, 'W') + " "), text.npos) << text;
  EXPECT_EQ(text.find("not measured"), text.npos) << text;
}

TEST(Explain, TellsTheWholeStoryOfABalancedPlan) {
  auto const profile = test::gpt_like(12, 256, 8192, 128);
  auto const topology = make_topology({2, 2}, 78 << 20);
  BalanceOptions options;
  options.global_batch = 32;

  auto const text = explain(balance(profile, topology, default_collective_profile(topology), options));

  for (auto const* words : {"plan    ", "bound ", "gap ", "limited by", "memory: ", "sets the pace",
                            "next best: ", "tightest memory", "recomputed: without it"}) {
    EXPECT_NE(text.find(words), text.npos) << words << "\n" << text;
  }
  for (auto const& line : lines(text)) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Explain, LeavesOutSamplesThatAreEqual) {
  auto plan = two_stages();
  plan.replicas[0].stages[0].batch_share = {2, 2};
  EXPECT_EQ(explain(plan).find("samples"), std::string::npos) << explain(plan);
}

TEST(Explain, SurvivesPlansThatMakeNoSense) {
  EXPECT_EQ(explain(Plan{}), "plan    no replica\n");
  auto plan = two_stages();
  plan.layers.clear();
  plan.replicas[0].stages[0].ranks = {7, 9, 10, 11, 12};
  plan.replicas[0].stages[1].ranks.clear();
  plan.replicas[0].stages[1].batch_share.clear();
  plan.predictions.ranks.resize(1);
  auto const text = explain(plan);
  EXPECT_NE(text.find("7,9-12"), text.npos) << text;
  EXPECT_NE(text.find("0..3"), text.npos) << text;
}

}  // namespace
}  // namespace ballast
