// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/json.hpp"

#include "ballast/base/error.hpp"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using nlohmann::json;

std::string data_error_of(std::function<void()> const& work) {
  try {
    work();
  } catch (DataError const& error) {
    return error.what();
  }
  return "no DataError";
}

/// The error of one getter applied to {"key": `value`}.
std::string error_of(json const& value, std::function<void(JsonReader&)> const& get) {
  json const object = {{"key", value}};
  return data_error_of([&] {
    JsonReader reader(object, "plan.json");
    get(reader);
  });
}

TEST(ParseJson, NamesLineAndColumnOfWhatIsNoJson) {
  auto const message = data_error_of([] { parse_json("{\n  \"a\": 1,\n  \"b\": }\n", "plan.json"); });

  EXPECT_EQ(message.find("plan.json:3:8: not JSON: "), 0u) << message;
}

TEST(ParseJson, NamesThePlaceAlsoInTheFirstLineAndAtTheEnd) {
  EXPECT_EQ(data_error_of([] { parse_json("nul", "p"); }).find("p:1:"), 0u);
  EXPECT_EQ(data_error_of([] { parse_json("", "p"); }).find("p:1:1: not JSON"), 0u);
  EXPECT_EQ(data_error_of([] { parse_json("{\"a\": [1, 2", "p"); }).find("p:1:12: not JSON"), 0u);
}

TEST(ParseJson, RefusesNumbersBeyondDoubleAndNotANumber) {
  EXPECT_THROW(parse_json("{\"a\": 1e999}", "p"), DataError);
  EXPECT_THROW(parse_json("{\"a\": NaN}", "p"), DataError);
  EXPECT_THROW(parse_json("{\"a\": Infinity}", "p"), DataError);
}

TEST(ParseJson, RefusesAKeyThatStandsTwice) {
  EXPECT_EQ(data_error_of([] { parse_json("{\"a\": {\"b\": 1, \"c\": 2, \"b\": 3}}", "p"); }),
            "p: the key \"b\" stands twice in one object");
  EXPECT_NO_THROW(parse_json("[{\"a\": {\"a\": 1}}, {\"a\": 2}]", "p"));
}

TEST(ParseJson, SurvivesDeepNesting) {
  std::string const deep(100000, '[');

  EXPECT_THROW(parse_json(deep, "p"), DataError);
}

TEST(JsonReader, ReadsEveryType) {
  auto const value = parse_json(R"({"schema": "ballast.plan/1", "i": -3, "x": 2.5, "whole": 4, "yes": true, "t": "text",
      "is": [1, 2], "ts": ["a", "b"], "o": {"j": 7}, "os": [{"k": 1}, {"k": 2}], "large": 9223372036854775807})",
                                "plan.json");
  JsonReader reader(value, "plan.json");

  reader.schema("ballast.plan/1");
  EXPECT_EQ(reader.integer("i"), -3);
  EXPECT_EQ(reader.number("x"), 2.5);
  EXPECT_EQ(reader.number("whole"), 4.0);
  EXPECT_TRUE(reader.flag("yes"));
  EXPECT_EQ(reader.text("t"), "text");
  EXPECT_EQ(reader.integers("is"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(reader.texts("ts"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(reader.object("o").integer("j"), 7);
  auto objects = reader.objects("os");
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[1].integer("k"), 2);
  EXPECT_EQ(reader.integer("large"), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(reader.has("i"));
  EXPECT_FALSE(reader.has("missing"));
  EXPECT_NO_THROW(reader.finish());
}

TEST(JsonReader, SaysWhereWhatWasExpectedAndWhatWasFound) {
  EXPECT_EQ(error_of("four", [](auto& reader) { reader.integer("key", 1); }),
            "plan.json: /key: expected an integer >= 1, found \"four\"");
  EXPECT_EQ(error_of(0, [](auto& reader) { reader.integer("key", 1); }),
            "plan.json: /key: expected an integer >= 1, found 0");
  EXPECT_EQ(error_of(9, [](auto& reader) { reader.integer("key", 1, 8); }),
            "plan.json: /key: expected an integer from 1 to 8, found 9");
  EXPECT_EQ(error_of(1, [](auto& reader) { reader.integer("other"); }),
            "plan.json: /other: expected an integer, found nothing");
  EXPECT_EQ(error_of(nullptr, [](auto& reader) { reader.text("key"); }), "plan.json: /key: expected text, found null");
  EXPECT_EQ(error_of(1, [](auto& reader) { reader.flag("key"); }), "plan.json: /key: expected true or false, found 1");
  EXPECT_EQ(error_of(json::array({1}), [](auto& reader) { reader.object("key"); }),
            "plan.json: /key: expected an object, found an array");
  EXPECT_EQ(error_of(json::array({1, "b"}), [](auto& reader) { reader.integers("key"); }),
            "plan.json: /key/1: expected an integer, found \"b\"");
  EXPECT_EQ(error_of(json::array({"a", 2}), [](auto& reader) { reader.texts("key"); }),
            "plan.json: /key/1: expected text, found 2");
  EXPECT_EQ(error_of(json::array({1}), [](auto& reader) { reader.objects("key"); }),
            "plan.json: /key/0: expected an object, found 1");
}

TEST(JsonReader, RefusesEveryWrongType) {
  EXPECT_THROW(JsonReader(json::array(), "p"), DataError);
  for (json const& wrong : {json("1"), json(1.0), json(true), json(nullptr), json::array(), json::object()}) {
    EXPECT_NE(error_of(wrong, [](auto& reader) { reader.integer("key"); }), "no DataError") << wrong;
  }
  for (json const& wrong : {json("1"), json(true), json(nullptr), json::array(), json::object()}) {
    EXPECT_NE(error_of(wrong, [](auto& reader) { reader.number("key"); }), "no DataError") << wrong;
  }
  for (json const& wrong : {json("1"), json(1), json(json::object())}) {
    EXPECT_NE(error_of(wrong, [](auto& reader) { reader.integers("key"); }), "no DataError") << wrong;
    EXPECT_NE(error_of(wrong, [](auto& reader) { reader.texts("key"); }), "no DataError") << wrong;
    EXPECT_NE(error_of(wrong, [](auto& reader) { reader.objects("key"); }), "no DataError") << wrong;
  }
}

TEST(JsonReader, RefusesIntegersBeyondInt64) {
  EXPECT_EQ(error_of(std::uint64_t{9223372036854775808u}, [](auto& reader) { reader.integer("key"); }),
            "plan.json: /key: expected an integer, found 9223372036854775808");
  EXPECT_NE(error_of(json::array({std::uint64_t{18446744073709551615u}}), [](auto& reader) { reader.integers("key"); }),
            "no DataError");
}

TEST(JsonReader, RefusesNumbersThatAreNotFiniteOrTooSmall) {
  EXPECT_NE(error_of(std::nan(""), [](auto& reader) { reader.number("key"); }), "no DataError");
  EXPECT_NE(error_of(INFINITY, [](auto& reader) { reader.number("key"); }), "no DataError");
  EXPECT_EQ(error_of(-0.5, [](auto& reader) { reader.number("key", 0.0); }),
            "plan.json: /key: expected a finite number >= 0, found -0.5");
}

TEST(JsonReader, RefusesAnotherSchema) {
  auto const value = parse_json(R"({"schema": "ballast.plan/2"})", "p");

  EXPECT_EQ(data_error_of([&] { JsonReader(value, "p").schema("ballast.plan/1"); }),
            "p: /schema: expected \"ballast.plan/1\", found \"ballast.plan/2\"");
}

TEST(JsonReader, RefusesKeysThatNobodyAskedForAndListsTheOthers) {
  auto const value = parse_json(R"({"a": 1, "b": {"c": 1, "typo": 2}})", "p");
  JsonReader reader(value, "p");
  reader.integer("a");
  auto inner = reader.object("b");
  inner.integer("c");

  EXPECT_NO_THROW(reader.finish());
  EXPECT_EQ(data_error_of([&] { inner.finish(); }), "p: /b/typo: unknown key; known here: c");
}

TEST(JsonReader, ShortensLongValuesInErrors) {
  auto const message = error_of(std::string(1000, 'x'), [](auto& reader) { reader.integer("key"); });

  EXPECT_LT(message.size(), 150u);
}

}  // namespace
}  // namespace ballast
