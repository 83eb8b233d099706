// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/run_report.hpp"

#include "ballast/base/error.hpp"
#include "support/text.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::replaced;

RunReport example() {
  RunReport report;
  report.first_step = 3;
  report.num_steps = 5;
  report.predicted_step_s = 0.1;
  report.measured_step_s = 0.11;
  report.train_loss = 2.5;
  report.validation_loss = 2.75;
  report.tokens_per_s = 1234.5;
  report.ranks = {{0, 1000, 990, 2000, 0.05, 0.06}, {1, 500, 480, 600, 0.04, 0.03}};
  return report;
}

TEST(RunReport, ComesBackFromJsonUnchanged) {
  EXPECT_EQ(run_report_from_json(to_json(example()), "report.json"), example());
}

TEST(RunReport, WritesALossThatIsNotANumberAsNull) {
  auto report = example();
  report.validation_loss = std::numeric_limits<double>::quiet_NaN();

  auto const text = to_json(report);

  EXPECT_NE(text.find("\"validation_loss\": null"), std::string::npos);
  EXPECT_TRUE(std::isnan(run_report_from_json(text, "report.json").validation_loss));
  EXPECT_EQ(run_report_from_json(text, "report.json").train_loss, 2.5);
}

TEST(RunReport, RefusesDamagedJson) {
  auto const text = to_json(example());

  EXPECT_THROW(run_report_from_json("[]", "r"), DataError);
  EXPECT_THROW(run_report_from_json(text.substr(0, text.size() / 2), "r"), DataError);
  EXPECT_THROW(run_report_from_json(replaced(text, "ballast.run/1", "ballast.run/2"), "r"), DataError);
  EXPECT_THROW(run_report_from_json(replaced(text, "\"num_steps\": 5", "\"num_steps\": -5"), "r"), DataError);
  EXPECT_THROW(run_report_from_json(replaced(text, "tokens_per_s", "tokens"), "r"), DataError);
  EXPECT_THROW(run_report_from_json(replaced(text, "\"rank\": 0", "\"rank\": null"), "r"), DataError);
}

TEST(RunReport, TableShowsRatiosOfMeasuredToPredicted) {
  auto const table = to_table(example());

  EXPECT_NE(table.find("0.990"), std::string::npos);  // 990 of 1000 bytes
  EXPECT_NE(table.find("1.100"), std::string::npos);  // 0.11 of 0.1 s
  EXPECT_NE(table.find("validation 2.7500"), std::string::npos);
}

TEST(RunReport, TableOfAPlanWithoutPredictionsHasDashes) {
  auto report = example();
  report.predicted_step_s = 0;
  for (auto& rank : report.ranks) rank.predicted_peak_bytes = 0;

  EXPECT_NE(to_table(report).find("step   predicted -, measured"), std::string::npos);
}

}  // namespace
}  // namespace ballast
