// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/run_report.hpp"

#include "ballast/base/json.hpp"
#include "ballast/base/units.hpp"
#include "ballast/report/text_table.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr char const* kSchema = "ballast.run/1";

/// JSON has no NaN: a loss that is not finite stands as null.
nlohmann::ordered_json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::string ratio(double measured, double predicted) {
  return predicted > 0 ? fmt::format("{:.3f}", measured / predicted) : "-";
}
std::string bytes_or_dash(std::int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }
std::string seconds_or_dash(double seconds) { return seconds > 0 ? format_seconds(seconds) : "-"; }

RankReport read_rank(JsonReader& reader) {
  RankReport rank;
  rank.rank = static_cast<int>(reader.integer("rank", 0, std::numeric_limits<int>::max()));
  rank.predicted_peak_bytes = reader.integer("predicted_peak_bytes", 0);
  rank.measured_peak_bytes = reader.integer("measured_peak_bytes", 0);
  rank.capacity_bytes = reader.integer("capacity_bytes", 0);
  rank.predicted_busy_s = reader.number("predicted_busy_s", 0.0);
  rank.measured_busy_s = reader.number("measured_busy_s", 0.0);
  reader.finish();
  return rank;
}

}  // namespace

std::string to_json(RunReport const& report) {
  nlohmann::ordered_json json = {{"schema", kSchema},
                                 {"first_step", report.first_step},
                                 {"num_steps", report.num_steps},
                                 {"predicted_step_s", report.predicted_step_s},
                                 {"measured_step_s", report.measured_step_s},
                                 {"train_loss", number_or_null(report.train_loss)},
                                 {"validation_loss", number_or_null(report.validation_loss)},
                                 {"tokens_per_s", report.tokens_per_s},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (auto const& rank : report.ranks) {
    json["ranks"].push_back({{"rank", rank.rank},
                             {"predicted_peak_bytes", rank.predicted_peak_bytes},
                             {"measured_peak_bytes", rank.measured_peak_bytes},
                             {"capacity_bytes", rank.capacity_bytes},
                             {"predicted_busy_s", rank.predicted_busy_s},
                             {"measured_busy_s", rank.measured_busy_s}});
  }
  return json.dump(2) + "\n";
}

RunReport run_report_from_json(std::string_view text, std::string const& source) {
  auto json = parse_json(text, source);
  // The strict reader knows numbers only.
  auto const replace_null = [&json](char const* key) {
    bool const is_null = json.is_object() && json.contains(key) && json[key].is_null();
    if (is_null) json[key] = 0.0;
    return is_null;
  };
  bool const no_train_loss = replace_null("train_loss");
  bool const no_validation_loss = replace_null("validation_loss");

  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  JsonReader reader(json, source);
  reader.schema(kSchema);
  RunReport report;
  report.first_step = reader.integer("first_step", 0);
  report.num_steps = reader.integer("num_steps", 0);
  report.predicted_step_s = reader.number("predicted_step_s", 0.0);
  report.measured_step_s = reader.number("measured_step_s", 0.0);
  report.train_loss = reader.number("train_loss");
  if (no_train_loss) report.train_loss = nan;
  report.validation_loss = reader.number("validation_loss");
  if (no_validation_loss) report.validation_loss = nan;
  report.tokens_per_s = reader.number("tokens_per_s", 0.0);
  for (auto& rank : reader.objects("ranks")) report.ranks.push_back(read_rank(rank));
  reader.finish();
  return report;
}

std::string to_table(RunReport const& report) {
  TextTable table({"rank", "peak predicted", "measured", "ratio", "memory", "busy predicted", "measured", "ratio"});
  for (auto const& rank : report.ranks) {
    table.add({std::to_string(rank.rank), bytes_or_dash(rank.predicted_peak_bytes),
               bytes_or_dash(rank.measured_peak_bytes),
               ratio(static_cast<double>(rank.measured_peak_bytes), static_cast<double>(rank.predicted_peak_bytes)),
               bytes_or_dash(rank.capacity_bytes), seconds_or_dash(rank.predicted_busy_s),
               seconds_or_dash(rank.measured_busy_s), ratio(rank.measured_busy_s, rank.predicted_busy_s)});
  }
  auto result = table.text();
  result +=
      fmt::format("step   predicted {}, measured {} (median), ratio {}\n", seconds_or_dash(report.predicted_step_s),
                  seconds_or_dash(report.measured_step_s), ratio(report.measured_step_s, report.predicted_step_s));
  result += fmt::format("run    {} steps after step {}, {:.1f} tokens or samples per s\n", report.num_steps,
                        report.first_step, report.tokens_per_s);
  result += fmt::format("loss   train {:.4f}", report.train_loss);
  result += std::isnan(report.validation_loss) ? ", not evaluated\n"
                                               : fmt::format(", validation {:.4f}\n", report.validation_loss);
  return result;
}

}  // namespace ballast
