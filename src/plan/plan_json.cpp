// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/plan/plan.hpp"

#include <limits>

#include <fmt/format.h>

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of the struct

constexpr char const* kSchema = "ballast.plan/1";

// ---- writing

Json json_of(MemoryPrediction const& memory) {
  return {
      {"weights", memory.weights},     {"gradients", memory.gradients},     {"optimizer_state", memory.optimizer_state},
      {"gathered", memory.gathered},   {"activations", memory.activations}, {"boundary", memory.boundary},
      {"transient", memory.transient}, {"baseline", memory.baseline},       {"capacity", memory.capacity}};
}

Json json_of(RankTimes const& times) {
  return {{"busy_s", times.busy_s}, {"communicate_s", times.communicate_s}, {"wait_s", times.wait_s}};
}

Json json_of(Predictions const& predictions) {
  Json ranks = Json::array();
  for (auto const& rank : predictions.ranks) {
    ranks.push_back({{"memory", json_of(rank.memory)}, {"times", json_of(rank.times)}});
  }
  Json stages = Json::array();
  for (auto const& stage : predictions.stages) {
    stages.push_back({{"micro_batch_s", stage.micro_batch_s}, {"limited_by", stage.limited_by}});
  }
  return {{"step_s", predictions.step_s},
          {"bubble", predictions.bubble},
          {"lower_bound_s", predictions.lower_bound_s},
          {"gap", predictions.gap},
          {"measured_collectives", predictions.measured_collectives},
          {"num_candidates", predictions.num_candidates},
          {"ranks", ranks},
          {"stages", stages},
          {"reasons", predictions.reasons}};
}

Json json_of(Stage const& stage) {
  return {{"layers", {{"begin", stage.layers.begin}, {"end", stage.layers.end}}},
          {"ranks", stage.ranks},
          {"batch_share", stage.batch_share},
          {"shard_share", stage.shard_share},
          {"zero", to_string(stage.zero)},
          {"gradient_reduction", to_string(stage.gradient_reduction)},
          {"recompute", stage.recompute}};
}

// ---- reading

/// Returns the value whose `to_string` is the text at `key`.
template <class Enum>
Enum choice(JsonReader& reader, std::string const& key, std::initializer_list<Enum> values) {
  auto const text = reader.text(key);
  std::string names;
  for (auto const value : values) {
    if (text == to_string(value)) return value;
    names += (names.empty() ? "\"" : ", \"") + to_string(value) + "\"";
  }
  reader.fail(key, "one of " + names);
}

int small_integer(JsonReader& reader, std::string const& key) {
  return static_cast<int>(reader.integer(key, 0, std::numeric_limits<int>::max()));
}

std::vector<int> small_integers(JsonReader& reader, std::string const& key) {
  std::vector<int> result;
  for (auto const value : reader.integers(key)) {
    if (value < 0 || value > std::numeric_limits<int>::max())
      reader.fail(key, "an array of integers from 0 to 2147483647");
    result.push_back(static_cast<int>(value));
  }
  return result;
}

MemoryPrediction memory_from(JsonReader reader) {
  MemoryPrediction memory;
  memory.weights = reader.integer("weights", 0);
  memory.gradients = reader.integer("gradients", 0);
  memory.optimizer_state = reader.integer("optimizer_state", 0);
  memory.gathered = reader.integer("gathered", 0);
  memory.activations = reader.integer("activations", 0);
  memory.boundary = reader.integer("boundary", 0);
  memory.transient = reader.integer("transient", 0);
  memory.baseline = reader.integer("baseline", 0);
  memory.capacity = reader.integer("capacity", 0);
  reader.finish();
  return memory;
}

RankTimes times_from(JsonReader reader) {
  RankTimes times;
  times.busy_s = reader.number("busy_s", 0);
  times.communicate_s = reader.number("communicate_s", 0);
  times.wait_s = reader.number("wait_s", 0);
  reader.finish();
  return times;
}

Predictions predictions_from(JsonReader reader) {
  Predictions predictions;
  predictions.step_s = reader.number("step_s", 0);
  predictions.bubble = reader.number("bubble", 0);
  predictions.lower_bound_s = reader.number("lower_bound_s", 0);
  predictions.gap = reader.number("gap", 0);
  predictions.measured_collectives = reader.flag("measured_collectives");
  predictions.num_candidates = reader.integer("num_candidates", 0);
  for (auto& rank : reader.objects("ranks")) {
    predictions.ranks.push_back({memory_from(rank.object("memory")), times_from(rank.object("times"))});
    rank.finish();
  }
  for (auto& stage : reader.objects("stages")) {
    predictions.stages.push_back({stage.number("micro_batch_s", 0), stage.text("limited_by")});
    stage.finish();
  }
  predictions.reasons = reader.texts("reasons");
  reader.finish();
  return predictions;
}

/// What a plan written by hand may leave out keeps the default of the struct.
Stage stage_from(JsonReader& reader) {
  Stage stage;
  auto layers = reader.object("layers");
  stage.layers = {small_integer(layers, "begin"), small_integer(layers, "end")};
  layers.finish();
  stage.ranks = small_integers(reader, "ranks");
  stage.batch_share = reader.integers("batch_share");
  stage.shard_share = reader.integers("shard_share");
  if (reader.has("zero")) {
    stage.zero =
        choice(reader, "zero", {ZeroLevel::none, ZeroLevel::optimizer, ZeroLevel::gradients, ZeroLevel::parameters});
  }
  if (reader.has("gradient_reduction")) {
    stage.gradient_reduction =
        choice(reader, "gradient_reduction", {GradientReduction::per_step, GradientReduction::per_micro_batch});
  }
  if (reader.has("recompute")) stage.recompute = small_integers(reader, "recompute");
  reader.finish();
  return stage;
}

}  // namespace

std::string to_json(Plan const& plan) {
  Json replicas = Json::array();
  for (auto const& replica : plan.replicas) {
    Json stages = Json::array();
    for (auto const& stage : replica.stages) stages.push_back(json_of(stage));
    replicas.push_back({{"stages", stages}});
  }
  Json json = {{"schema", kSchema},
               {"model", plan.model},
               {"topology", plan.topology},
               {"layers", plan.layers},
               {"dtype", to_string(plan.dtype)},
               {"optimizer", to_string(plan.optimizer)},
               {"global_batch", plan.global_batch},
               {"num_micro_batches", plan.num_micro_batches},
               {"schedule", to_string(plan.schedule)},
               {"replicas", replicas}};
  if (plan.predictions != Predictions{}) json["predictions"] = json_of(plan.predictions);
  return json.dump(2) + "\n";
}

Plan plan_from_json(std::string_view text, std::string const& source) {
  auto const json = parse_json(text, source);
  JsonReader reader(json, source);
  reader.schema(kSchema);
  Plan plan;
  if (reader.has("model")) plan.model = reader.text("model");
  if (reader.has("topology")) plan.topology = reader.text("topology");
  plan.layers = reader.texts("layers");
  plan.dtype = choice(
      reader, "dtype",
      {DataType::uint8, DataType::int32, DataType::int64, DataType::bfloat16, DataType::float32, DataType::float64});
  plan.optimizer = choice(reader, "optimizer", {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw});
  plan.global_batch = reader.integer("global_batch");
  plan.num_micro_batches = reader.integer("num_micro_batches");
  plan.schedule = choice(reader, "schedule", {ScheduleKind::gpipe, ScheduleKind::one_f_one_b});
  for (auto& replica : reader.objects("replicas")) {
    plan.replicas.emplace_back();
    for (auto& stage : replica.objects("stages")) plan.replicas.back().stages.push_back(stage_from(stage));
    replica.finish();
  }
  if (reader.has("predictions")) plan.predictions = predictions_from(reader.object("predictions"));
  reader.finish();
  return plan;
}

}  // namespace ballast
