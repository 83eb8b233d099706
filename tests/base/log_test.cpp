// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/log.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>

namespace ballast {
namespace {

/// What four lines of rising level leave on stderr.
std::string logged(LogLevel level, int rank) {
  configure_log(level, rank);
  testing::internal::CaptureStderr();
  log(LogLevel::debug, "d {}");
  log(LogLevel::info, "i");
  log(LogLevel::warning, "w");
  log(LogLevel::error, "e");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, PrintsWhatTheLevelSays) {
  EXPECT_EQ(logged(LogLevel::info, -1), "i\nwarning: w\nerror: e\n");
  EXPECT_EQ(logged(LogLevel::warning, -1), "warning: w\nerror: e\n");
  EXPECT_EQ(logged(LogLevel::error, -1), "error: e\n");
  EXPECT_EQ(logged(LogLevel::off, -1), "");
}

TEST(Log, PrefixesTheRank) { EXPECT_EQ(logged(LogLevel::info, 0), "[0] i\n[0] warning: w\n[0] error: e\n"); }

TEST(Log, IsQuietOnOtherRanksUnlessDebugging) {
  EXPECT_EQ(logged(LogLevel::info, 3), "[3] warning: w\n[3] error: e\n");
  EXPECT_EQ(logged(LogLevel::debug, 3), "[3] d {}\n[3] i\n[3] warning: w\n[3] error: e\n");
}

TEST(Log, LevelIsReadFromItsName) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("info"), LogLevel::info);
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("error"), LogLevel::error);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  for (char const* text : {"", "Info", "warn", "verbose"}) EXPECT_THROW(parse_log_level(text), InvalidArgument) << text;
}

}  // namespace
}  // namespace ballast
