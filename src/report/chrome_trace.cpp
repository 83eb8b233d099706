// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/chrome_trace.hpp"

#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {

std::string to_chrome_trace(std::vector<TimelineEntry> const& timeline, std::vector<std::string> const& layers) {
  auto events = nlohmann::ordered_json::array();
  std::set<int> ranks;
  for (auto const& entry : timeline) ranks.insert(entry.rank);
  for (int const rank : ranks) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
  }
  for (auto const& entry : timeline) {
    auto const& action = entry.action;
    auto const kind = to_string(action.kind);
    auto name = kind;
    auto args = nlohmann::ordered_json::object();
    if (action.layer >= 0 && action.layer < static_cast<int>(layers.size())) {
      name += " " + layers[action.layer];
      args["layer"] = layers[action.layer];
    }
    if (action.micro_batch >= 0) args["micro_batch"] = action.micro_batch;
    events.push_back({{"name", std::move(name)},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", entry.rank},
                      {"ts", entry.begin_s * 1e6},
                      {"dur", (entry.end_s - entry.begin_s) * 1e6},
                      {"args", std::move(args)}});
  }
  nlohmann::ordered_json const trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump() + "\n";
}

}  // namespace ballast
