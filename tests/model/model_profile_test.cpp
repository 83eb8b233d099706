// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_profile.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

ModelProfile two_layers() {
  ModelProfile profile;
  profile.name = "two \"layers\"";
  profile.dtype = DataType::bfloat16;
  profile.device = "cpu";
  profile.input_bytes_per_sample = 100;
  profile.target_bytes_per_sample = 8;
  profile.baseline_bytes = 4096;
  profile.update_s_per_parameter = 1e-9;
  profile.layers = {
      {"first", 10, {{2, 0.1, 0.2, 1024, 512, 2048, 1536, 512, 0}, {4, 0.3, 0.6, 4096, 1024, 6144, 2048, 512, 0}}},
      {"second", 0, {{1, 1.0 / 3, 0.5, 0, 0, 0, 0, 0, 512}}}};
  profile.loss = {"loss", 0, {{1, 0.1, 0, 0, 0, 512, 0, 0, 512}}};
  return profile;
}

TEST(ModelProfile, IsExactAtMeasuredPoints) {
  auto const profile = two_layers();

  EXPECT_EQ(profile.layers[0].at(2), profile.layers[0].points[0]);
  EXPECT_EQ(profile.layers[0].at(4), profile.layers[0].points[1]);
  EXPECT_EQ(profile.layers[0].at(0), LayerPoint{});
  EXPECT_THROW(profile.layers[0].at(-1), InvalidArgument);
}

TEST(ModelProfile, IsLinearBetweenAndBeyondPointsWithRoomForRounding) {
  auto const layer = two_layers().layers[0];
  std::int64_t const room = 16 * kAllocationQuantum;

  auto const between = layer.at(3);
  EXPECT_DOUBLE_EQ(between.forward_s, 0.2);
  EXPECT_DOUBLE_EQ(between.backward_s, 0.4);
  EXPECT_EQ(between.samples, 3);
  EXPECT_EQ(between.saved_bytes, 2560 + room);
  EXPECT_EQ(between.output_bytes, 1024 + room) << "768 rounded up";
  EXPECT_EQ(between.backward_peak_bytes, 512 + room);
  EXPECT_EQ(between.input_gradient_bytes, 0) << "nothing stays nothing";

  auto const beyond = layer.at(8);
  EXPECT_DOUBLE_EQ(beyond.forward_s, 0.7);
  EXPECT_EQ(beyond.saved_bytes, 10240 + room);

  auto const below = layer.at(1);
  EXPECT_DOUBLE_EQ(below.forward_s, 0.05);
  EXPECT_EQ(below.saved_bytes, 512 + room);
}

TEST(ModelProfile, IsProportionalWithOnePoint) {
  auto const layer = two_layers().layers[1];

  EXPECT_DOUBLE_EQ(layer.at(3).forward_s, 1.0);
  EXPECT_EQ(layer.at(3).input_gradient_bytes, 1536 + 16 * kAllocationQuantum);
}

TEST(ModelProfile, NeverFallsBeyondTheLastPoint) {
  LayerProfile noisy{"noisy", 0, {{1, 2.0, 1, 4096, 0, 0, 0, 0, 0}, {2, 1.0, 1, 512, 0, 0, 0, 0, 0}}};

  EXPECT_EQ(noisy.at(100).forward_s, 1.0);
  EXPECT_EQ(noisy.at(100).saved_bytes, 512 + 16 * kAllocationQuantum);
}

TEST(ModelProfile, ReadsBackWhatItWrote) {
  auto const text = to_json(two_layers());

  EXPECT_EQ(model_profile_from_json(text, "test"), two_layers());
  EXPECT_EQ(to_json(model_profile_from_json(text, "test")), text);
  auto const json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "ballast.model/1");
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["layers"][0]["points"][1]["forward_peak_bytes"], 6144);
  EXPECT_EQ(json["layers"][1]["points"][0]["forward_s"].get<double>(), 1.0 / 3);
}

/// Expects a `DataError` whose message holds `words` when `change` was applied to a good profile's JSON.
template <class Change>
void expect_refused(std::string const& words, Change const& change) {
  auto json = nlohmann::json::parse(to_json(two_layers()));
  change(json);
  try {
    model_profile_from_json(json.dump(), "bad.json");
    ADD_FAILURE() << "accepted what should name " << words;
  } catch (DataError const& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(ModelProfile, RefusesJsonThatMakesNoSense) {
  expect_refused("/schema", [](auto& j) { j["schema"] = "ballast.plan/1"; });
  expect_refused("/layers: expected at least one layer", [](auto& j) { j["layers"].clear(); });
  expect_refused("/layers/0/points: expected at least one", [](auto& j) { j["layers"][0]["points"].clear(); });
  expect_refused("/layers/0/points/1/samples", [](auto& j) { j["layers"][0]["points"][1]["samples"] = 2; });
  expect_refused("/layers/0/points/0/samples", [](auto& j) { j["layers"][0]["points"][0]["samples"] = 0; });
  expect_refused("/layers/0/points/0/forward_s", [](auto& j) { j["layers"][0]["points"][0]["forward_s"] = -1.0; });
  expect_refused("/layers/0/points/0/forward_s", [](auto& j) { j["layers"][0]["points"][0]["forward_s"] = nullptr; });
  expect_refused("/layers/1/points/0/saved_bytes", [](auto& j) { j["layers"][1]["points"][0]["saved_bytes"] = -512; });
  expect_refused("/layers/0/num_parameters", [](auto& j) { j["layers"][0]["num_parameters"] = 1.5; });
  expect_refused("/layers/0/colour", [](auto& j) { j["layers"][0]["colour"] = "red"; });
  expect_refused("/dtype", [](auto& j) { j["dtype"] = "float16"; });
  expect_refused("/update_s_per_parameter", [](auto& j) { j["update_s_per_parameter"] = -1e-9; });
  expect_refused("/loss", [](auto& j) { j.erase("loss"); });
}

TEST(ModelProfile, HasAFingerprintOfItsIdentityOnly) {
  auto const one = fingerprint(two_layers());
  auto other = two_layers();
  other.layers[0].points[0].forward_s = 9;
  other.device = "gpu";
  EXPECT_EQ(fingerprint(other), one);

  other.layers[0].name = "zeroth";
  EXPECT_NE(fingerprint(other), one);
  other = two_layers();
  other.layers[1].num_parameters = 1;
  EXPECT_NE(fingerprint(other), one);
  other = two_layers();
  other.dtype = DataType::float32;
  EXPECT_NE(fingerprint(other), one);
  other = two_layers();
  other.name = "three";
  EXPECT_NE(fingerprint(other), one);
}

TEST(ModelProfile, RoundsAllocations) {
  EXPECT_EQ(round_allocation(0), 0);
  EXPECT_EQ(round_allocation(1), 512);
  EXPECT_EQ(round_allocation(512), 512);
  EXPECT_EQ(round_allocation(513), 1024);
}

}  // namespace
}  // namespace ballast
