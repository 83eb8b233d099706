// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/balance.hpp"

#include "ballast/base/error.hpp"
#include "ballast/plan/memory_model.hpp"
#include "ballast/plan/simulate.hpp"
#include "ballast/plan/validate.hpp"
#include "plan/plan_fixtures.hpp"

#include <algorithm>
#include <chrono>

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

std::vector<Stage> const& stages(Plan const& plan) { return plan.replicas.at(0).stages; }

/// The plan runs, fits, and says about itself what the models say.
void expect_sound(Plan const& plan, ModelProfile const& profile, Topology const& topology,
                  CollectiveProfile const& collectives) {
  EXPECT_EQ(faults(plan, profile, topology), std::vector<std::string>{});
  EXPECT_EQ(plan.predictions.step_s, simulate(plan, profile, topology, collectives).step_s);
  EXPECT_LE(plan.predictions.lower_bound_s, plan.predictions.step_s);
  EXPECT_GE(plan.predictions.gap, 0.0);
  EXPECT_GT(plan.predictions.num_candidates, 0);
  EXPECT_EQ(plan.predictions.ranks.size(), topology.devices.size());
  EXPECT_EQ(plan.predictions.stages.size(), stages(plan).size());
  EXPECT_FALSE(plan.predictions.reasons.empty());
}

std::string all_reasons(Plan const& plan) {
  std::string text;
  for (auto const& reason : plan.predictions.reasons) text += reason + "\n";
  return text;
}

TEST(Balance, GivesOneLayerToOneRank) {
  auto const profile = uniform_model(1, 1.0, 100);
  auto const topology = make_topology({1}, kMib);

  auto const plan = balance(profile, topology, default_collective_profile(topology), batch_of(1));

  ASSERT_EQ(stages(plan).size(), 1u);
  EXPECT_EQ(stages(plan)[0].layers, (LayerRange{0, 1}));
  EXPECT_EQ(plan.predictions.step_s, 3.0);
  EXPECT_EQ(plan.predictions.gap, 0.0);
  EXPECT_EQ(plan.layers, std::vector<std::string>{"layer0"});
  expect_sound(plan, profile, topology, default_collective_profile(topology));
}

TEST(Balance, SharesASingleLayerBetweenRanksWhenLinksAreFast) {
  auto const profile = uniform_model(1, 1.0, 100);
  auto const topology = make_topology({4}, kMib);

  auto const plan = balance(profile, topology, flat_collectives(1e-6), batch_of(8));

  ASSERT_EQ(stages(plan).size(), 1u);
  EXPECT_EQ(stages(plan)[0].batch_share, (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_NEAR(plan.predictions.step_s, 6.0, 1e-4);
}

TEST(Balance, LeavesRanksIdleWhenLinksAreTooSlow) {
  auto const profile = uniform_model(2, 1e-3, 100);
  auto const topology = make_topology({1, 1, 1}, kMib);

  auto const plan = balance(profile, topology, flat_collectives(10.0), batch_of(2));

  ASSERT_EQ(stages(plan).size(), 1u);
  EXPECT_EQ(stages(plan)[0].ranks.size(), 1u);
  EXPECT_NE(all_reasons(plan).find("idle ranks 1,2"), std::string::npos) << all_reasons(plan);
  expect_sound(plan, profile, topology, flat_collectives(10.0));
}

TEST(Balance, ReachesTheClosedFormOfAUniformPipeline) {
  // Slow collectives and free messages: a pipeline of single ranks, whose step is (M + S - 1) (f + b). No gap is left.
  auto collectives = flat_collectives(1.0);
  for (auto& point : collectives.points) {
    if (point.operation == Operation::send) point.seconds = 0;
  }
  auto const profile = uniform_model(8, 0.25, 100);
  auto const topology = make_topology({4}, kMib);

  auto const plan = balance(profile, topology, collectives, batch_of(32));

  EXPECT_EQ(stages(plan).size(), 4u);
  EXPECT_EQ(plan.num_micro_batches, 32);
  EXPECT_EQ(plan.predictions.step_s, (32 + 3) * 2 * 0.75);
  EXPECT_EQ(plan.predictions.gap, 0.0);
}

TEST(Balance, KeepsTheHeavyHeadAloneWhenItIsTheBottleneck) {
  auto profile = make_model({{"a", 100, 1.0}, {"b", 100, 1.0}, {"c", 100, 1.0}, {"head", 100, 3.0}});
  auto const topology = make_topology({1, 1}, kMib);
  auto const collectives = flat_collectives(0.01);
  auto options = batch_of(16);
  options.group_size = 1;

  auto const plan = balance(profile, topology, collectives, options);

  ASSERT_EQ(stages(plan).size(), 2u);
  EXPECT_EQ(stages(plan)[0].layers, (LayerRange{0, 3}));
  expect_sound(plan, profile, topology, collectives);
}

TEST(Balance, GivesTheFasterDeviceMoreLayersOrSamples) {
  auto const profile = uniform_model(9, 1.0, 100);
  auto topology = make_topology({2}, kMib);
  topology.devices[1].speed = 2.0;
  auto options = batch_of(12);

  auto const grouped = balance(profile, topology, flat_collectives(1e-6), options);
  ASSERT_EQ(stages(grouped).size(), 1u);
  EXPECT_EQ(stages(grouped)[0].batch_share[1], 2 * stages(grouped)[0].batch_share[0]);

  options.group_size = 1;
  auto const piped = balance(profile, topology, flat_collectives(1e-6), options);
  ASSERT_EQ(stages(piped).size(), 2u);
  for (auto const& stage : stages(piped)) EXPECT_EQ(stage.layers.size(), stage.ranks[0] == 1 ? 6 : 3);
}

TEST(Balance, RecomputesOnlyWhenMemoryAsksForIt) {
  auto const profile = gpt_like(12, 256, 8192, 128);
  auto topology = make_topology({2, 2}, 120 * kMib);
  auto const collectives = default_collective_profile(topology);

  auto const roomy = balance(profile, topology, collectives, batch_of(32));
  for (auto const& stage : stages(roomy)) EXPECT_TRUE(stage.recompute.empty());

  for (auto& device : topology.devices) device.memory_bytes = 78 * kMib;
  auto const tight = balance(profile, topology, collectives, batch_of(32));
  std::size_t recomputed = 0;
  std::size_t untouched = 0;
  for (auto const& stage : stages(tight)) {
    recomputed += stage.recompute.size();
    untouched += stage.recompute.empty();
  }
  EXPECT_GT(recomputed, 0u);
  EXPECT_GT(untouched, 0u) << "the last stages keep few micro-batches";
  EXPECT_NE(all_reasons(tight).find("without it the plan misses"), std::string::npos) << all_reasons(tight);
  expect_sound(tight, profile, topology, collectives);

  auto options = batch_of(32);
  options.allow_recompute = false;
  try {
    auto const without = balance(profile, topology, collectives, options);
    EXPECT_GT(without.predictions.step_s, tight.predictions.step_s);
  } catch (InfeasiblePlan const& error) {
    EXPECT_NE(std::string(error.what()).find("recompute is allowed"), std::string::npos) << error.what();
  }
}

TEST(Balance, SharesParametersByFreeMemory) {
  // A group of two equal devices, one of which has less memory: it keeps fewer parameters.
  auto const profile = uniform_model(4, 1.0, 100'000);  // 1.6 MB of weights, gradients and states per layer
  auto topology = make_topology({2}, 8 * kMib);
  topology.devices[0].memory_bytes = 3 * kMib;
  auto options = batch_of(4);
  options.num_stages = 1;
  options.group_size = 2;

  auto const plan = balance(profile, topology, flat_collectives(1e-3), options);

  auto const& stage = stages(plan)[0];
  ASSERT_EQ(stage.ranks, (std::vector<int>{0, 1}));
  EXPECT_LT(stage.shard_share[0], stage.shard_share[1]);
  expect_sound(plan, profile, topology, flat_collectives(1e-3));

  topology.devices[0].memory_bytes = 8 * kMib;
  EXPECT_EQ(stages(balance(profile, topology, flat_collectives(1e-3), options))[0].shard_share,
            (std::vector<std::int64_t>{1, 1}));
}

TEST(Balance, MovesSamplesAwayFromARankThatCannotHoldThem) {
  auto const profile = make_model({{"wide", 100, 1.0, 512, 400'000}});
  auto topology = make_topology({2}, 8 * kMib);
  topology.devices[0].memory_bytes = kMib / 8;
  auto options = batch_of(8);
  options.num_stages = 1;
  options.group_size = 2;
  options.micro_batches = {8};
  options.allow_recompute = false;

  auto const plan = balance(profile, topology, flat_collectives(1e-3), options);

  EXPECT_EQ(stages(plan)[0].batch_share, (std::vector<std::int64_t>{0, 8}));
  expect_sound(plan, profile, topology, flat_collectives(1e-3));
}

TEST(Balance, KeepsTheReserveFree) {
  auto const profile = gpt_like(6, 128, 1000, 64);
  auto const topology = make_topology({2, 2}, 12 * kMib);
  auto const collectives = default_collective_profile(topology);
  auto options = batch_of(16);
  options.reserve = 0.25;

  auto const plan = balance(profile, topology, collectives, options);

  for (auto const& rank : plan.predictions.ranks) {
    EXPECT_LE(rank.memory.peak(), 9 * kMib);
    EXPECT_EQ(rank.memory.capacity, 12 * kMib);
  }
}

TEST(Balance, HoldsToTheOptions) {
  auto const profile = gpt_like(6, 128, 1000, 64);
  auto const topology = make_topology({2, 2}, 100 * kMib);
  auto const collectives = default_collective_profile(topology);
  for (int const num_stages : {1, 2, 3, 4}) {
    for (std::int64_t const group_size : {1, 2}) {
      if (num_stages * group_size > 4) continue;
      for (auto const schedule : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
        auto options = batch_of(12);
        options.num_stages = num_stages;
        options.group_size = group_size;
        options.schedules = {schedule};
        options.micro_batches = {3, 5, 6};
        options.optimizer = OptimizerKind::sgd;

        auto const plan = balance(profile, topology, collectives, options);

        EXPECT_EQ(static_cast<int>(stages(plan).size()), num_stages);
        for (auto const& stage : stages(plan)) EXPECT_EQ(std::ssize(stage.ranks), group_size);
        EXPECT_EQ(plan.schedule, schedule);
        EXPECT_TRUE(stages(plan)[0].micro_batch() == 3 || stages(plan)[0].micro_batch() == 6);
        EXPECT_EQ(plan.optimizer, OptimizerKind::sgd);
        expect_sound(plan, profile, topology, collectives);
      }
    }
  }
}

TEST(Balance, UsesAtMostOneRankPerLayerInAPipeline) {
  auto const profile = uniform_model(3, 1.0, 100);
  auto const topology = make_topology({8}, kMib);
  auto options = batch_of(8);
  options.group_size = 1;

  auto const plan = balance(profile, topology, flat_collectives(1e-3), options);

  EXPECT_EQ(stages(plan).size(), 3u);
  expect_sound(plan, profile, topology, flat_collectives(1e-3));
}

TEST(Balance, ExplainsItsChoice) {
  auto const profile = gpt_like(12, 256, 8192, 128);
  auto const topology = make_topology({2, 2}, 78 * kMib);

  auto const plan = balance(profile, topology, default_collective_profile(topology), batch_of(32));

  auto const text = all_reasons(plan);
  EXPECT_NE(text.find("sets the pace"), text.npos) << text;
  EXPECT_NE(text.find("next best: "), text.npos) << text;
  EXPECT_NE(text.find("tightest memory: rank"), text.npos) << text;
  EXPECT_NE(text.find(" more on rank"), text.npos) << text;
  EXPECT_NE(text.find("links not measured"), text.npos) << text;
  EXPECT_EQ(plan.model, fingerprint(profile));
  EXPECT_EQ(plan.topology, fingerprint(topology));
}

TEST(Balance, PredictsPlansWrittenByHand) {
  auto const profile = uniform_model(4, 1.0, 100);
  auto const topology = make_topology({3}, kMib);
  auto plan = test::make_plan(profile, 4, {test::make_stage(0, 1, {0}, {1}), test::make_stage(1, 4, {1}, {1})});
  plan.predictions.lower_bound_s = 42;
  plan.predictions.reasons = {"kept"};

  predict(plan, profile, topology, flat_collectives(0.5));

  EXPECT_EQ(plan.predictions.step_s, simulate(plan, profile, topology, flat_collectives(0.5)).step_s);
  ASSERT_EQ(plan.predictions.ranks.size(), 3u);
  EXPECT_EQ(plan.predictions.ranks[1].memory, predict_memory(plan, profile, topology)[1]);
  EXPECT_EQ(plan.predictions.stages[0].limited_by, "waits for stage 1");
  EXPECT_EQ(plan.predictions.stages[1].limited_by, "time");
  EXPECT_EQ(plan.predictions.stages[1].micro_batch_s, 9.0);
  EXPECT_EQ(plan.predictions.lower_bound_s, 42);
  EXPECT_EQ(plan.predictions.reasons, std::vector<std::string>{"kept"});
  EXPECT_TRUE(plan.predictions.measured_collectives);
}

TEST(Balance, PlansFiftyLayersOnEightRanksInTime) {
  auto const profile = gpt_like(48, 256, 8192, 128);
  auto topology = make_topology({4, 4}, 200 * kMib);
  for (int rank = 4; rank < 8; ++rank) topology.devices[static_cast<std::size_t>(rank)].speed = 0.6;
  auto const begin = std::chrono::steady_clock::now();

  auto const plan = balance(profile, topology, default_collective_profile(topology), batch_of(64));

  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", std::to_string(seconds));
  expect_sound(plan, profile, topology, default_collective_profile(topology));
  EXPECT_LT(seconds, 30.0)
      << "0.2 s in a release build on an idle core; this bound is for sanitizers and busy machines";
}

}  // namespace
}  // namespace ballast
