// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/chrome_trace.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

TEST(ChromeTrace, HoldsOneBoxPerActionInMicroseconds) {
  std::vector<TimelineEntry> const timeline = {{1, {ActionKind::forward, 2, 0}, 0.5, 0.75},
                                               {0, {ActionKind::update, -1, -1}, 1.0, 1.5}};

  auto const trace = nlohmann::json::parse(to_chrome_trace(timeline, {"embed"}));

  auto const& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 4U);  // two names of rows, two boxes
  EXPECT_EQ(events[0].at("args").at("name"), "rank 0");
  EXPECT_EQ(events[1].at("args").at("name"), "rank 1");
  EXPECT_EQ(events[2].at("name"), "forward embed");
  EXPECT_EQ(events[2].at("tid"), 1);
  EXPECT_EQ(events[2].at("ts"), 500000.0);
  EXPECT_EQ(events[2].at("dur"), 250000.0);
  EXPECT_EQ(events[2].at("args").at("micro_batch"), 2);
  EXPECT_EQ(events[3].at("name"), "update");
  EXPECT_FALSE(events[3].at("args").contains("layer"));
}

TEST(ChromeTrace, OfAnEmptyTimelineIsValid) {
  EXPECT_TRUE(nlohmann::json::parse(to_chrome_trace({}, {})).at("traceEvents").empty());
}

}  // namespace
}  // namespace ballast
