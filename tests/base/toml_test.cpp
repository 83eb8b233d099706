// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/toml.hpp"

#include "ballast/base/error.hpp"

#include <functional>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr auto kAnyInteger = std::numeric_limits<std::int64_t>::min();
constexpr auto kAnyNumber = std::numeric_limits<double>::lowest();

std::string invalid_argument_of(std::function<void()> const& work) {
  try {
    work();
  } catch (InvalidArgument const& error) {
    return error.what();
  }
  return "no InvalidArgument";
}

/// The error of one getter applied to `key = <value>` in the second line, in a table.
std::string error_of(std::string const& value, std::function<void(TomlTable&)> const& get) {
  return invalid_argument_of([&] {
    auto document = TomlTable::parse("[train]\nkey = " + value + "\n", "run.toml");
    auto table = document.table("train");
    get(*table);
  });
}

TEST(TomlTable, ReadsEveryType) {
  auto document = TomlTable::parse(R"(
steps = 10
rate = 2.5
whole = 3
yes = true
name = "gpt"
schedule = "1f1b"
memory = "64MiB"
cap = 4096
latency = "5us"
pause = 2
speed = "10GB/s"
slow = 1e6
sizes = [1, 2, 4]
[inner]
a = 1
[inner.deeper]
b = 2
[[node]]
name = "x"
[[node]]
name = "y"
devices = [ { kind = "large" } ]
)",
                                   "run.toml");

  EXPECT_EQ(document.integer("steps", 1), 10);
  EXPECT_EQ(document.number("rate", 0), 2.5);
  EXPECT_EQ(document.number("whole", 0), 3.0);
  EXPECT_TRUE(document.flag("yes"));
  EXPECT_EQ(document.text("name"), "gpt");
  EXPECT_EQ(document.choice("schedule", {"gpipe", "1f1b"}), "1f1b");
  EXPECT_EQ(document.bytes("memory"), 64 << 20);
  EXPECT_EQ(document.bytes("cap"), 4096);
  EXPECT_DOUBLE_EQ(document.seconds("latency"), 5e-6);
  EXPECT_DOUBLE_EQ(document.seconds("pause"), 2.0);
  EXPECT_DOUBLE_EQ(document.bytes_per_s("speed"), 10e9);
  EXPECT_DOUBLE_EQ(document.bytes_per_s("slow"), 1e6);
  EXPECT_EQ(document.integers("sizes"), (std::vector<std::int64_t>{1, 2, 4}));
  auto inner = document.table("inner");
  ASSERT_TRUE(inner.has_value());
  EXPECT_EQ(inner->integer("a", 0), 1);
  EXPECT_EQ(inner->table("deeper")->integer("b", 0), 2);
  auto nodes = document.tables("node");
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].text("name"), "y");
  EXPECT_EQ(nodes[1].tables("devices").at(0).text("kind"), "large");
  EXPECT_NO_THROW(document.finish());
}

TEST(TomlTable, GivesTheFallbackForAnAbsentKeyOnly) {
  auto document = TomlTable::parse("a = \"wrong\"", "run.toml");

  EXPECT_EQ(document.integer("b", 1, 7), 7);
  EXPECT_EQ(document.number("c", 0, 0.5), 0.5);
  EXPECT_FALSE(document.flag("d", false));
  EXPECT_EQ(document.text("e", "x"), "x");
  EXPECT_EQ(document.choice("f", {"x"}, "y"), "y");
  EXPECT_EQ(document.bytes("g", 8), 8);
  EXPECT_EQ(document.seconds("h", 0.25), 0.25);
  EXPECT_EQ(document.bytes_per_s("i", 5.0), 5.0);
  EXPECT_EQ(document.integers("j", std::vector<std::int64_t>{}), std::vector<std::int64_t>{});
  EXPECT_EQ(document.texts("m", std::vector<std::string>{"x"}), std::vector<std::string>{"x"});
  EXPECT_FALSE(document.table("k").has_value());
  EXPECT_TRUE(document.tables("l").empty());
  EXPECT_THROW(document.integer("a", 1, 7), InvalidArgument);
}

TEST(TomlTable, NamesFileLineTableKeyExpectationAndValue) {
  EXPECT_EQ(error_of("\"many\"", [](auto& table) { table.integer("key", 1); }),
            "run.toml:2: [train] key: expected an integer >= 1, found \"many\"");
  EXPECT_EQ(error_of("0", [](auto& table) { table.integer("key", 1); }),
            "run.toml:2: [train] key: expected an integer >= 1, found 0");
  EXPECT_EQ(error_of("1.5", [](auto& table) { table.integer("key", kAnyInteger); }),
            "run.toml:2: [train] key: expected an integer, found 1.5");
  EXPECT_EQ(error_of("1", [](auto& table) { table.text("other"); }),
            "run.toml:1: [train] other: expected text, found nothing");
  EXPECT_EQ(error_of("1", [](auto& table) { table.flag("key"); }),
            "run.toml:2: [train] key: expected true or false, found 1");
  EXPECT_EQ(error_of("\"x\"",
                     [](auto& table) {
                       table.choice("key", {"gpipe", "1f1b"});
                     }),
            "run.toml:2: [train] key: expected one of gpipe, 1f1b, found \"x\"");
  EXPECT_EQ(error_of("[1, \"b\"]", [](auto& table) { table.integers("key"); }),
            "run.toml:2: [train] key: expected an array of integers, found an array");
  EXPECT_EQ(error_of("[\"a\", 1]", [](auto& table) { table.texts("key"); }),
            "run.toml:2: [train] key: expected an array of texts, found an array");
  EXPECT_EQ(error_of("1", [](auto& table) { table.table("key"); }),
            "run.toml:2: [train] key: expected a table, found 1");
  EXPECT_EQ(error_of("{a = 1}", [](auto& table) { table.tables("key"); }),
            "run.toml:2: [train] key: expected an array of tables, found a table");
  EXPECT_EQ(error_of("[1]", [](auto& table) { table.tables("key"); }),
            "run.toml:2: [train] key: expected an array of tables, found an array");
}

TEST(TomlTable, NamesKeysOfTheDocumentWithoutATable) {
  auto document = TomlTable::parse("\na = 1", "run.toml");

  EXPECT_EQ(invalid_argument_of([&] { document.text("a"); }), "run.toml:2: a: expected text, found 1");
  EXPECT_EQ(document.where(""), "run.toml:1");
}

TEST(TomlTable, RefusesNumbersThatAreNotFiniteOrTooSmall) {
  for (char const* value : {"nan", "inf", "-inf", "\"nan\"", "\"inf\"", "true"}) {
    EXPECT_NE(error_of(value, [](auto& table) { table.number("key", kAnyNumber); }), "no InvalidArgument") << value;
    EXPECT_NE(error_of(value, [](auto& table) { table.seconds("key"); }), "no InvalidArgument") << value;
    EXPECT_NE(error_of(value, [](auto& table) { table.bytes_per_s("key"); }), "no InvalidArgument") << value;
  }
  EXPECT_EQ(error_of("-1", [](auto& table) { table.number("key", 0); }),
            "run.toml:2: [train] key: expected a finite number >= 0, found -1");
}

TEST(TomlTable, RefusesQuantitiesThatAreNone) {
  for (char const* value : {"-1", "1.5", "\"64 mib\"", "\"99999999999TiB\"", "true", "[1]"}) {
    EXPECT_NE(error_of(value, [](auto& table) { table.bytes("key"); }), "no InvalidArgument") << value;
  }
  EXPECT_NE(error_of("-0.5", [](auto& table) { table.seconds("key"); }), "no InvalidArgument");
  EXPECT_NE(error_of("\"5 parsecs\"", [](auto& table) { table.seconds("key"); }), "no InvalidArgument");
  EXPECT_NE(error_of("0", [](auto& table) { table.bytes_per_s("key"); }), "no InvalidArgument");
  EXPECT_EQ(error_of("\"10GB\"", [](auto& table) { table.bytes_per_s("key"); }),
            "run.toml:2: [train] key: expected bytes per second above zero as a number or text such as \"10GB/s\", "
            "found \"10GB\"");
}

TEST(TomlTable, ShowsDatesAndTimesAsTheyAreWritten) {
  EXPECT_EQ(error_of("1979-05-27", [](auto& table) { table.integer("key", 1); }),
            "run.toml:2: [train] key: expected an integer >= 1, found 1979-05-27");
}

TEST(TomlTable, RefusesKeysThatNobodyAskedForAndListsTheOthers) {
  auto document = TomlTable::parse("[train]\nsteps = 1\nstpes = 2\n", "run.toml");
  auto table = document.table("train");
  table->integer("steps", 1);
  table->number("rate", 0, 0.0);

  EXPECT_NO_THROW(document.finish());
  EXPECT_EQ(invalid_argument_of([&] { table->finish(); }),
            "run.toml:3: [train] stpes: unknown key; known here: rate, steps");
}

TEST(TomlTable, SubtablesOutliveTheDocumentAndKeepTheirLines) {
  auto table = TomlTable::parse("\n\n[a]\n[a.b]\nc = 1\n", "run.toml").table("a")->table("b");

  EXPECT_EQ(table->where("c"), "run.toml:5: [a.b] c");
  EXPECT_EQ(table->where(""), "run.toml:4: [a.b]");
  EXPECT_EQ(table->integer("c", 0), 1);
}

TEST(TomlTable, NamesLineAndColumnOfWhatIsNoToml) {
  auto const message = invalid_argument_of([] { TomlTable::parse("a = 1\nb = \n", "run.toml"); });

  EXPECT_EQ(message.find("run.toml:2:"), 0u) << message;
  EXPECT_NE(message.find("not TOML"), message.npos) << message;
  EXPECT_NE(invalid_argument_of([] { TomlTable::parse("a = 1\na = 2\n", "run.toml"); }), "no InvalidArgument");
}

TEST(TomlTable, NamesTheFileThatIsMissing) {
  EXPECT_EQ(invalid_argument_of([] { TomlTable::read("/no/such/run.toml"); }), "there is no file /no/such/run.toml");
}

}  // namespace
}  // namespace ballast
