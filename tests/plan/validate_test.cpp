// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/validate.hpp"

#include "ballast/base/error.hpp"
#include "plan/plan_fixtures.hpp"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::layer_names;
using test::make_plan;
using test::make_stage;
using test::make_topology;
using test::uniform_model;

/// Six layers on a group of two and a single rank, four micro-batches of three.
Plan good_plan() {
  return make_plan(uniform_model(6, 1.0, 100), 4, {make_stage(0, 4, {0, 1}, {2, 1}), make_stage(4, 6, {2}, {3})});
}

std::string joined(std::vector<std::string> const& lines) {
  std::string text;
  for (auto const& line : lines) text += line + "\n";
  return text;
}

struct Fault {
  std::string name;
  std::string words;  ///< that its message holds
  std::function<void(Plan&)> spoil;
};

std::vector<Fault> all_faults() {
  auto const first = [](Plan& plan) -> Stage& { return plan.replicas[0].stages[0]; };
  auto const second = [](Plan& plan) -> Stage& { return plan.replicas[0].stages[1]; };
  return {
      {"FewerLayers", "for 5 layers, the model has 6", [](Plan& p) { p.layers.pop_back(); }},
      {"OtherName", "layer 2 is \"other\" in the plan and \"layer2\"", [](Plan& p) { p.layers[2] = "other"; }},
      {"NoName", "layer 1 has no name", [](Plan& p) { p.layers[1] = ""; }},
      {"SameName", "two layers are named \"layer0\"", [](Plan& p) { p.layers[1] = "layer0"; }},
      {"Integers", "dtype int64 cannot be trained", [](Plan& p) { p.dtype = DataType::int64; }},
      {"Schedule", "unknown schedule 7", [](Plan& p) { p.schedule = static_cast<ScheduleKind>(7); }},
      {"Optimizer", "unknown optimizer 9", [](Plan& p) { p.optimizer = static_cast<OptimizerKind>(9); }},
      {"NoBatch", "global batch is 0", [](Plan& p) { p.global_batch = 0; }},
      {"NegativeBatch", "global batch is -12", [](Plan& p) { p.global_batch = -12; }},
      {"NoMicroBatches", "has 0 micro-batches", [](Plan& p) { p.num_micro_batches = 0; }},
      {"TooManyMicroBatches", "runs up to 65536",
       [](Plan& p) { p.num_micro_batches = p.global_batch = 3'000'000'000; }},
      {"UnevenMicroBatches", "5 micro-batches do not divide the global batch of 12",
       [](Plan& p) { p.num_micro_batches = 5; }},
      {"NoReplica", "no replica", [](Plan& p) { p.replicas.clear(); }},
      {"TwoReplicas", "2 replicas; this version runs one", [](Plan& p) { p.replicas.push_back(p.replicas[0]); }},
      {"NoStage", "replica 0 has no stage", [](Plan& p) { p.replicas[0].stages.clear(); }},
      {"BeyondLayers", "stage 1 has layers [4, 7), the model has [0, 6)", [=](Plan& p) { second(p).layers.end = 7; }},
      {"NegativeLayers", "stage 0 has layers [-1, 4)", [=](Plan& p) { first(p).layers.begin = -1; }},
      {"EmptyRange", "stage 1 has no layers: [6, 6)", [=](Plan& p) { second(p).layers.begin = 6; }},
      {"ReversedRange", "stage 1 has no layers: [6, 4)",
       [=](Plan& p) {
         second(p).layers = {6, 4};
       }},
      {"Gap", "layers [3, 4) before stage 1 are in no stage", [=](Plan& p) { first(p).layers.end = 3; }},
      {"Overlap", "layers [3, 4) of stage 1 are in the stage before already",
       [=](Plan& p) { second(p).layers.begin = 3; }},
      {"TooShort", "layers [5, 6) after the last stage are in no stage", [=](Plan& p) { second(p).layers.end = 5; }},
      {"NoRanks", "stage 1 has no ranks", [=](Plan& p) { second(p).ranks.clear(); }},
      {"NegativeRank", "stage 1 has rank -1", [=](Plan& p) { second(p).ranks[0] = -1; }},
      {"RankBeyondJob", "stage 1 has rank 3, the job has ranks 0 to 2", [=](Plan& p) { second(p).ranks[0] = 3; }},
      {"RankTwice", "stage 0 has rank 0 twice", [=](Plan& p) { first(p).ranks[1] = 0; }},
      {"RankInTwoStages", "rank 1 of stage 1 is in a stage before already", [=](Plan& p) { second(p).ranks[0] = 1; }},
      {"BatchShareLength", "stage 0 has 1 batch shares for 2 ranks", [=](Plan& p) { first(p).batch_share = {3}; }},
      {"ShardShareLength", "stage 0 has 3 shard shares for 2 ranks",
       [=](Plan& p) {
         first(p).shard_share = {1, 1, 1};
       }},
      {"NegativeBatchShare", "stage 0 has the negative batch share -1",
       [=](Plan& p) {
         first(p).batch_share = {4, -1};
       }},
      {"HugeBatchShare", "beyond the global batch of 12",
       [=](Plan& p) {
         first(p).batch_share = {12, std::numeric_limits<std::int64_t>::max()};
       }},
      {"NegativeShardShare", "stage 0 has the negative shard share -2",
       [=](Plan& p) {
         first(p).shard_share = {3, -2};
       }},
      {"NoSamples", "stage 0 has no samples",
       [=](Plan& p) {
         first(p).batch_share = {0, 0};
       }},
      {"NoShards", "stage 0 keeps no parameters",
       [=](Plan& p) {
         first(p).shard_share = {0, 0};
       }},
      {"OtherMicroBatch", "stage 1 has batch shares of 2 samples, a micro-batch has 3 (12 / 4)",
       [=](Plan& p) { second(p).batch_share = {2}; }},
      {"ForeignRecompute", "stage 1 recomputes layer 2, it has layers [4, 6)",
       [=](Plan& p) { second(p).recompute = {2}; }},
      {"UnsortedRecompute", "lists recomputed layer 1 after layer 2",
       [=](Plan& p) {
         first(p).recompute = {2, 1};
       }},
      {"RecomputeTwice", "lists recomputed layer 1 after layer 1",
       [=](Plan& p) {
         first(p).recompute = {1, 1};
       }},
      {"UnknownZero", "unknown ZeRO level 4", [=](Plan& p) { first(p).zero = static_cast<ZeroLevel>(4); }},
      {"LowerZero", "2 ranks with zero-1; this version runs groups with zero-3",
       [=](Plan& p) { first(p).zero = ZeroLevel::optimizer; }},
      {"ReductionPerStep", "reduces gradients per_step",
       [=](Plan& p) { first(p).gradient_reduction = GradientReduction::per_step; }},
  };
}

class EveryFault : public testing::TestWithParam<Fault> {};

TEST_P(EveryFault, IsNamedWithItsNumbers) {
  auto plan = good_plan();
  GetParam().spoil(plan);

  auto const found = structural_faults(plan, layer_names(uniform_model(6, 1.0)), 3);

  EXPECT_NE(joined(found).find(GetParam().words), std::string::npos) << joined(found);
  EXPECT_THROW(require_runnable(plan, layer_names(uniform_model(6, 1.0)), 3), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Validate, EveryFault, testing::ValuesIn(all_faults()),
                         [](auto const& info) { return info.param.name; });

TEST(Validate, AcceptsGoodPlans) {
  auto const names = layer_names(uniform_model(6, 1.0));
  auto plan = good_plan();
  EXPECT_EQ(joined(structural_faults(plan, names, 3)), "");
  EXPECT_NO_THROW(require_runnable(plan, names, 3));
  EXPECT_EQ(joined(structural_faults(plan, names, 5)), "") << "ranks in no stage idle";

  plan.schedule = ScheduleKind::gpipe;
  plan.replicas[0].stages[0].recompute = {0, 3};
  plan.replicas[0].stages[0].batch_share = {3, 0};
  plan.replicas[0].stages[0].shard_share = {0, 1};
  plan.replicas[0].stages[1].zero = ZeroLevel::none;
  plan.replicas[0].stages[1].gradient_reduction = GradientReduction::per_step;
  EXPECT_EQ(joined(structural_faults(plan, names, 3)), "") << "a single rank has nothing to shard";
}

TEST(Validate, ListsAllFaultsAtOnce) {
  auto plan = good_plan();
  plan.global_batch = 0;
  plan.replicas[0].stages[0].layers.end = 3;
  plan.replicas[0].stages[1].ranks[0] = 9;

  try {
    require_runnable(plan, layer_names(uniform_model(6, 1.0)), 3);
    ADD_FAILURE() << "accepted";
  } catch (InvalidArgument const& error) {
    std::string const text = error.what();
    EXPECT_NE(text.find("global batch is 0"), text.npos) << text;
    EXPECT_NE(text.find("[3, 4)"), text.npos) << text;
    EXPECT_NE(text.find("rank 9"), text.npos) << text;
  }
}

TEST(Validate, NamesRanksThatRunOutOfMemory) {
  auto const profile = uniform_model(6, 1.0, 100);
  auto topology = make_topology({3}, 1 << 20);
  EXPECT_EQ(joined(faults(good_plan(), profile, topology)), "");

  topology.devices[2].memory_bytes = 2048;
  auto const found = faults(good_plan(), profile, topology);

  ASSERT_EQ(found.size(), 1u) << joined(found);
  EXPECT_NE(found[0].find("rank 2 needs"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("has 2.00 KiB"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("missing"), std::string::npos) << found[0];
}

TEST(Validate, AsksNothingOfIdleRanks) {
  auto profile = uniform_model(6, 1.0, 100);
  profile.baseline_bytes = 1000;
  auto topology = make_topology({4}, 1 << 20);
  topology.devices[3].memory_bytes = 0;
  EXPECT_EQ(joined(faults(good_plan(), profile, topology)), "");
}

TEST(Validate, NamesOtherModelsTopologiesAndTypes) {
  auto const profile = uniform_model(6, 1.0, 100);
  auto const topology = make_topology({3}, 1 << 20);
  auto plan = good_plan();
  plan.model = fingerprint(profile);
  plan.topology = fingerprint(topology);
  EXPECT_EQ(joined(faults(plan, profile, topology)), "");

  plan.model = "another";
  plan.topology = "elsewhere";
  plan.dtype = DataType::bfloat16;
  auto const text = joined(faults(plan, profile, topology));

  EXPECT_NE(text.find("made for model another"), text.npos) << text;
  EXPECT_NE(text.find("made for topology elsewhere"), text.npos) << text;
  EXPECT_NE(text.find("trains in bfloat16, the model was profiled in float32"), text.npos) << text;
}

TEST(Validate, KnowsThatAModelNeedsLayers) {
  Plan plan = good_plan();
  EXPECT_NE(joined(structural_faults(plan, {}, 3)).find("the model has no layers"), std::string::npos);
}

}  // namespace
}  // namespace ballast
