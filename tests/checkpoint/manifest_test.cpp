// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include "ballast/base/error.hpp"
#include "support/text.hpp"

#include <random>

#include <gtest/gtest.h>

namespace ballast::detail {
namespace {

using test::replaced;

Manifest example() {
  return {
      42,
      {{"block0/weight", {4, 3}, DataType::float32}, {"none", {0}, DataType::int64}, {"step", {}, DataType::int64}},
      {{"rank-0000.h5",
        1000,
        std::string(32, '0'),
        {{"block0/weight", 0, 6, "/block0/weight/0-6"}, {"step", 0, 1, "/step/0-1"}}},
       {"rank-0001.2.h5", 2000, "0123456789abcdef0123456789abcdef", {{"block0/weight", 6, 12, "/block0/weight/6-12"}}}},
      R"({"seed":18446744073709551615,"text":"ä\"[{"})"};
}

std::string refusal(std::string const& text) {
  try {
    manifest_from_json(text, "manifest.json");
  } catch (DataError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Manifest, ComesBackFromJsonAsItWas) {
  auto const text = to_json(example());

  EXPECT_EQ(manifest_from_json(text, "manifest.json"), example());
  EXPECT_EQ(to_json(manifest_from_json(text, "manifest.json")), text);
}

TEST(Manifest, RefusesAbsurdValuesAndNamesThePlace) {
  struct Case {
    char const* old;
    char const* by;
    char const* expected;
  };
  for (auto const& [old, by, expected] : {
           Case{"ballast.checkpoint/1", "ballast.checkpoint/2", "/schema"},
           Case{"\"step\": 42", "\"step\": -1", "/step"},
           Case{"\"step\": 42", "\"step\": 1e300", "/step"},
           Case{"\"step\": 42", "\"step\": 99999999999999999999", "/step"},
           Case{"\"step\": 42", "\"step\": \"42\"", "/step"},
           Case{"\"step\": 42", "\"step\": 42, \"step\": 43", "twice"},
           Case{"\"step\": 42", "\"step\": 42, \"more\": 0", "/more"},
           Case{"\"name\": \"block0/weight\"", "\"name\": \"../weight\"", "/tensors/0/name"},
           Case{"\"name\": \"block0/weight\"", "\"name\": \"zzz\"", "/tensors/1/name"},
           Case{"\"name\": \"none\"", "\"name\": \"block0/weight\"", "/tensors/1/name"},
           Case{"\"name\": \"none\"", "\"name\": \"no\\u0000ne\"", "/tensors/1/name"},
           Case{"\"type\": \"float32\"", "\"type\": \"float33\"", "/tensors/0/type"},
           Case{"\"type\": \"float32\"", "\"type\": 4", "/tensors/0/type"},
           Case{"\"shape\": [\n    4,", "\"shape\": [\n    -4,", "/tensors/0/shape"},
           Case{"\"shape\": [\n    4,", "\"shape\": [\n    1.5,", "/tensors/0/shape"},
           Case{"\"shape\": [\n    4,", "\"shape\": [\n    4611686018427387904, 4,", "/tensors/0/shape"},
           Case{"\"shape\": [\n    4,", "\"shape\": [\n    9223372036854775807,", "/tensors/0/shape"},
           Case{"\"shape\": [\n    4,", "\"shape\": [\n    4294967296, 4294967296, 0,", "/tensors/0/shape"},
           Case{"rank-0000.h5", "../rank-0000.h5", "/files/0/name"},
           Case{"rank-0000.h5", "/etc/passwd", "/files/0/name"},
           Case{"rank-0000.h5", "..", "/files/0/name"},
           Case{"rank-0000.h5", ".", "/files/0/name"},
           Case{"rank-0000.h5", "", "/files/0/name"},
           Case{"rank-0000.h5", "a\\u0000b", "/files/0/name"},
           Case{"rank-0000.h5", "a b", "/files/0/name"},
           Case{"rank-0000.h5", "manifest.json", "/files/0/name"},
           Case{"rank-0000.h5", "rank-0001.2.h5", "/files/1/name"},
           Case{"\"bytes\": 1000", "\"bytes\": -1", "/files/0/bytes"},
           Case{"\"bytes\": 1000", "\"bytes\": 9223372036854775807", "/files/1/bytes"},
           Case{"\"bytes\": 1000", "\"bytes\": 1e3", "/files/0/bytes"},
           Case{"0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789abcdef", "/files/1/hash"},
           Case{"0123456789abcdef0123456789abcdef", "0123", "/files/1/hash"},
           Case{"\"tensor\": \"step\"", "\"tensor\": \"stop\"", "/files/0/shards/1/tensor"},
           Case{"\"begin\": 6", "\"begin\": -6", "/files/1/shards/0/begin"},
           Case{"\"begin\": 6", "\"begin\": 12", "/files/1/shards/0/end"},
           Case{"\"end\": 12", "\"end\": 13", "/files/1/shards/0/end"},
           Case{"\"end\": 12", "\"end\": 6", "/files/1/shards/0/end"},
           Case{"\"end\": 12", "\"end\": 9223372036854775808", "/files/1/shards/0/end"},
           Case{"/block0/weight/6-12", "/step/0-1", "/files/1/shards/0/dataset"},
           Case{"\"metadata\": {", "\"metadata\": 7, \"data\": {", "/metadata"},
           Case{"\"metadata\": {", "\"data\": {", "/metadata"},
       }) {
    auto const message = refusal(replaced(to_json(example()), old, by));
    EXPECT_NE(message.find(expected), std::string::npos) << by << " gave: " << message;
    EXPECT_TRUE(message.starts_with("manifest.json")) << message;
  }
}

TEST(Manifest, RefusesDeepNestingBeforeItReachesTheStack) {
  auto const deep = std::string(1'000'000, '[');

  EXPECT_NE(refusal(deep), "accepted");
  EXPECT_NE(refusal(replaced(to_json(example()), "\"metadata\": {", "\"metadata\": {\"x\": " + deep)), "accepted");
  EXPECT_THROW(check_depth(std::string(101, '['), "text"), DataError);
  EXPECT_NO_THROW(check_depth(std::string(100, '['), "text"));
  EXPECT_NO_THROW(check_depth("\"" + deep + "\\\"" + deep + "\"", "text")) << "brackets inside text do not nest";
}

TEST(Manifest, SurvivesAnyDamage) {
  unsigned const seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto const text = to_json(example());

  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto damaged = text;
    for (auto change = random() % 3 + 1; change > 0; --change) {
      auto const at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, random() % 20 + 1);
          break;
        default:
          damaged.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
      }
      if (damaged.empty()) break;
    }
    try {  // either it still is a manifest, or it is refused in the one way that callers handle
      auto const manifest = manifest_from_json(damaged, "manifest.json");
      EXPECT_EQ(manifest_from_json(to_json(manifest), "again"), manifest);
    } catch (DataError const&) {
      ++refused;
    }
  }

  EXPECT_GT(refused, 10'000);
}

TEST(NumElements, CountsWithoutOverflow) {
  EXPECT_EQ(num_elements({}, DataType::int64), 1);
  EXPECT_EQ(num_elements({4, 3}, DataType::float32), 12);
  EXPECT_EQ(num_elements({4, 0, 3}, DataType::float32), 0);
  EXPECT_EQ(num_elements({(std::int64_t{1} << 60) - 1}, DataType::float64), (std::int64_t{1} << 60) - 1);
  EXPECT_EQ(num_elements({std::int64_t{1} << 60}, DataType::float64), std::nullopt);
  EXPECT_EQ(num_elements({std::int64_t{1} << 60}, DataType::uint8), std::int64_t{1} << 60);
  EXPECT_EQ(num_elements({std::int64_t{1} << 32, std::int64_t{1} << 32}, DataType::uint8), std::nullopt);
  EXPECT_EQ(num_elements({-1}, DataType::uint8), std::nullopt);
}

}  // namespace
}  // namespace ballast::detail
