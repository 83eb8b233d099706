// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/units.hpp"

#include "ballast/base/error.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(FormatBytes, GivesThreeDigitsInBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(212 << 20), "212 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{13} << 28), "3.25 GiB");
  EXPECT_EQ(format_bytes(-1536), "-1.50 KiB");
}

TEST(FormatBytes, MovesToTheNextUnitInsteadOfPrinting1024) {
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1023 * 1024), "1023 KiB");
}

TEST(FormatBytes, TakesTheLargestAndTheSmallestNumber) {
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::max()), "8388608 TiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::min()), "-8388608 TiB");
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(5e-6), "5.00 us");
  EXPECT_EQ(format_seconds(3e-9), "3.00 ns");
  EXPECT_EQ(format_seconds(0.9999999), "1.00 s");
  EXPECT_EQ(format_seconds(90), "90.0 s");
  EXPECT_EQ(format_seconds(1800), "30.0 min");
  EXPECT_EQ(format_seconds(7200), "2.00 h");
  EXPECT_EQ(format_seconds(-0.002), "-2.00 ms");
}

TEST(FormatSeconds, ShowsWhatIsNotANumber) {
  EXPECT_EQ(format_seconds(std::nan("")), "nan s");
  EXPECT_EQ(format_seconds(INFINITY), "inf s");
}

TEST(FormatRate, UsesDecimalUnits) {
  EXPECT_EQ(format_rate(1.5e9), "1.50 GB/s");
  EXPECT_EQ(format_rate(400e6), "400 MB/s");
  EXPECT_EQ(format_rate(12), "12.0 B/s");
  EXPECT_EQ(format_rate(0), "0 B/s");
}

TEST(ParseBytes, ReadsEveryUnit) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("2kB"), 2000);
  EXPECT_EQ(parse_bytes("2KB"), 2000);
  EXPECT_EQ(parse_bytes("2KiB"), 2048);
  EXPECT_EQ(parse_bytes("64MiB"), std::int64_t{64} << 20);
  EXPECT_EQ(parse_bytes("3 MB"), 3000000);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000);
  EXPECT_EQ(parse_bytes(" 1.5GiB "), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2TB"), 2000000000000);
  EXPECT_EQ(parse_bytes("2TiB"), std::int64_t{1} << 41);
}

TEST(ParseBytes, IsExactForIntegersBeyondDouble) {
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993);  // 2^53 + 1
  EXPECT_EQ(parse_bytes("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
}

TEST(ParseBytes, RefusesWhatDoesNotFit) {
  for (char const* text : {"99999999999TiB", "9223372036854775808", "8388608TiB", "1e300", "8388608.5TiB", "1e400"}) {
    EXPECT_THROW(parse_bytes(text), InvalidArgument) << text;
  }
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (char const* text : {"", " ", "MiB", "-1", "-1MiB", "+1", "1.5", "1.5B", "64 mib", "64Mib", "64MiB/s", "nan",
                           "inf", "infinity", "0x10", "1 2", "64MiB64", "1,5GB", "1..5GB"}) {
    EXPECT_THROW(parse_bytes(text), InvalidArgument) << text;
  }
}

TEST(ParseBytes, SaysWhatItExpectedAndWhatItFound) {
  try {
    parse_bytes("64 mib");
    FAIL() << "nothing was thrown";
  } catch (InvalidArgument const& error) {
    EXPECT_STREQ(
        error.what(),
        "size: expected bytes such as \"4096\", \"64MiB\" or \"1.5 GB\" (below 8388608 TiB), found \"64 mib\"");
  }
}

TEST(ParseSeconds, ReadsEveryUnit) {
  EXPECT_DOUBLE_EQ(parse_seconds("5us"), 5e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5 ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("10s"), 10);
  EXPECT_DOUBLE_EQ(parse_seconds("10"), 10);
  EXPECT_DOUBLE_EQ(parse_seconds("7ns"), 7e-9);
  EXPECT_DOUBLE_EQ(parse_seconds("3min"), 180);
  EXPECT_DOUBLE_EQ(parse_seconds("2h"), 7200);
  EXPECT_DOUBLE_EQ(parse_seconds("1e-3"), 1e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("0"), 0);
}

TEST(ParseSeconds, RefusesWhatIsNoTime) {
  for (char const* text : {"", "s", "-5us", "5 hours", "nan", "inf", "1e308h", "1m", "5us5"}) {
    EXPECT_THROW(parse_seconds(text), InvalidArgument) << text;
  }
}

TEST(ParseRate, ReadsBytesAndBitsWithDecimalAndBinaryUnits) {
  EXPECT_DOUBLE_EQ(parse_rate("10GB/s"), 10e9);
  EXPECT_DOUBLE_EQ(parse_rate("800 Mbit/s"), 100e6);
  EXPECT_DOUBLE_EQ(parse_rate("1.5 GiB/s"), 1.5 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(parse_rate("7B/s"), 7);
  EXPECT_DOUBLE_EQ(parse_rate("8kbit/s"), 1000);
  EXPECT_DOUBLE_EQ(parse_rate("1Tbit/s"), 125e9);
}

TEST(ParseRate, RefusesWhatIsNoRateAboveZero) {
  for (char const* text :
       {"", "10", "10GB", "0B/s", "-1GB/s", "10Gb/s", "10 xB/s", "nan B/s", "1e308TB/s", "5e-324bit/s"}) {
    EXPECT_THROW(parse_rate(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace ballast
