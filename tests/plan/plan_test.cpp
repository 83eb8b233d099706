// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/plan.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

/// Every field differs from its default.
Plan full_plan() {
  Plan plan;
  plan.model = "m";
  plan.topology = "t";
  plan.layers = {"embed", "block \"0\"", "head"};
  plan.dtype = DataType::float64;
  plan.optimizer = OptimizerKind::sgd_momentum;
  plan.global_batch = 24;
  plan.num_micro_batches = 6;
  plan.schedule = ScheduleKind::gpipe;
  Stage first;
  first.layers = {0, 2};
  first.ranks = {2, 0};
  first.batch_share = {3, 1};
  first.shard_share = {1, 5};
  first.recompute = {0, 1};
  Stage second;
  second.layers = {2, 3};
  second.ranks = {1};
  second.batch_share = {4};
  second.shard_share = {1};
  second.zero = ZeroLevel::gradients;
  second.gradient_reduction = GradientReduction::per_step;
  plan.replicas = {{{first, second}}};
  plan.predictions.step_s = 0.1;
  plan.predictions.bubble = 1.0 / 3;
  plan.predictions.lower_bound_s = 5e-324;
  plan.predictions.gap = 0.30000000000000004;
  plan.predictions.measured_collectives = true;
  plan.predictions.num_candidates = 17;
  plan.predictions.ranks = {
      {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0.1, 0.2, 0.3}}, {{}, {}}, {{9, 8, 7, 6, 5, 4, 3, 2, 1}, {1, 2, 3}}};
  plan.predictions.stages = {{0.25, "time"}, {0.125, "memory: weights"}};
  plan.predictions.reasons = {"one", "two\nlines"};
  return plan;
}

TEST(Plan, ReadsBackWhatItWrote) {
  auto const plan = full_plan();

  auto const text = to_json(plan);

  EXPECT_EQ(plan_from_json(text, "test"), plan);
  EXPECT_EQ(to_json(plan_from_json(text, "test")), text);
}

TEST(Plan, WritesWhatOthersCanRead) {
  auto const json = nlohmann::json::parse(to_json(full_plan()));

  EXPECT_EQ(json["schema"], "ballast.plan/1");
  EXPECT_EQ(json["schedule"], "gpipe");
  EXPECT_EQ(json["replicas"][0]["stages"][0]["layers"]["end"], 2);
  EXPECT_EQ(json["replicas"][0]["stages"][0]["zero"], "zero-3");
  EXPECT_EQ(json["replicas"][0]["stages"][1]["gradient_reduction"], "per_step");
  EXPECT_EQ(json["predictions"]["ranks"][0]["memory"]["optimizer_state"], 3);
  EXPECT_EQ(json["predictions"]["gap"].get<double>(), 0.30000000000000004);
}

TEST(Plan, NeedsLittleWhenWrittenByHand) {
  auto const plan = plan_from_json(R"({
    "schema": "ballast.plan/1", "layers": ["a", "b"], "dtype": "float32", "optimizer": "adamw",
    "global_batch": 8, "num_micro_batches": 2, "schedule": "1f1b",
    "replicas": [{"stages": [{"layers": {"begin": 0, "end": 2}, "ranks": [0], "batch_share": [4], "shard_share": [1]}]}]})",
                                   "hand");

  EXPECT_EQ(plan.replicas[0].stages[0].zero, ZeroLevel::parameters);
  EXPECT_TRUE(plan.replicas[0].stages[0].recompute.empty());
  EXPECT_EQ(plan.predictions, Predictions{});
  EXPECT_EQ(plan.model, "");
  EXPECT_EQ(plan.num_ranks(), 1);
  EXPECT_EQ(plan.replicas[0].stages[0].micro_batch(), 4);
}

/// Expects a `DataError` whose message holds `words` when `from` is replaced by `to` in a good plan.
void expect_refused(std::string const& from, std::string const& to, std::string const& words) {
  auto text = to_json(full_plan());
  auto const at = text.find(from);
  ASSERT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
  try {
    plan_from_json(text, "bad.json");
    ADD_FAILURE() << "accepted " << to;
  } catch (DataError const& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("bad.json", 0), 0u) << error.what();
  }
}

TEST(Plan, RefusesJsonThatItDoesNotKnowExactly) {
  expect_refused("ballast.plan/1", "ballast.plan/2", "/schema");
  expect_refused("\"dtype\": \"float64\"", "\"dtype\": \"float65\"", "/dtype: expected one of \"uint8\"");
  expect_refused("\"schedule\": \"gpipe\"", "\"schedule\": \"magic\"", "\"gpipe\", \"1f1b\"");
  expect_refused("\"optimizer\": \"sgd_momentum\"", "\"optimizer\": 3", "/optimizer");
  expect_refused("\"global_batch\": 24", "\"global_batch\": 24.5", "/global_batch");
  expect_refused("\"zero\": \"zero-3\"", "\"zero\": \"zero-4\"", "/replicas/0/stages/0/zero");
  expect_refused("\"recompute\"", "\"recompute_layers\"", "/replicas/0/stages/0/recompute_layers");
  expect_refused("\"begin\": 0", "\"begin\": -1", "/replicas/0/stages/0/layers/begin");
  expect_refused("\"bubble\"", "\"bubbles\"", "/predictions/bubble");
  expect_refused("\"weights\": 1", "\"weights\": -1", "/predictions/ranks/0/memory/weights");
  expect_refused("{", "", "not JSON");
}

TEST(Plan, RefusesRanksBeyondIntegers) {
  auto json = nlohmann::json::parse(to_json(full_plan()));
  json["replicas"][0]["stages"][0]["ranks"] = {1, 3'000'000'000};
  EXPECT_THROW(plan_from_json(json.dump(), "test"), DataError);
}

TEST(Plan, NamesItsChoices) {
  EXPECT_EQ(to_string(ZeroLevel::parameters), "zero-3");
  EXPECT_EQ(to_string(GradientReduction::per_step), "per_step");
  for (auto const kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
    EXPECT_EQ(parse_schedule(to_string(kind)), kind);
  for (auto const kind : {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    EXPECT_EQ(parse_optimizer(to_string(kind)), kind);
  }
  EXPECT_THROW(parse_schedule("pipedream"), InvalidArgument);
  EXPECT_THROW(parse_optimizer("adam"), InvalidArgument);
  EXPECT_EQ(num_states(OptimizerKind::sgd), 0);
  EXPECT_EQ(num_states(OptimizerKind::sgd_momentum), 1);
  EXPECT_EQ(num_states(OptimizerKind::adamw), 2);
  EXPECT_EQ(Plan{}.num_ranks(), 0);
}

}  // namespace
}  // namespace ballast
