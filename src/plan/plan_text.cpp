// SPDX-License-Identifier: Apache-2.0
#include "plan_text.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace ballast::detail {

std::string count_text(std::int64_t count, std::string const& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("batch") ? "es" : "s");
}

std::string shape_text(Plan const& plan) {
  if (plan.replicas.empty()) return "no replica";
  auto const& stages = plan.replicas.front().stages;
  std::set<std::size_t> sizes;
  std::string listed;
  for (auto const& stage : stages) {
    sizes.insert(stage.ranks.size());
    listed += fmt::format("{}{}", listed.empty() ? "" : " + ", stage.ranks.size());
  }
  auto text = count_text(std::ssize(stages), "stage");
  if (sizes.size() == 1) {
    text += " x " + count_text(static_cast<std::int64_t>(*sizes.begin()), "rank");
  } else if (stages.size() > 8) {
    text += fmt::format(" on {} to {} ranks", *sizes.begin(), *sizes.rbegin());
  } else if (!stages.empty()) {
    text += fmt::format(" on {} ranks", listed);
  }
  if (plan.replicas.size() > 1) text = fmt::format("{} replicas of {}", plan.replicas.size(), text);
  auto const micro_batch = stages.empty() ? 0 : stages.front().micro_batch();
  text += fmt::format(", {} of {}, {}", count_text(plan.num_micro_batches, "micro-batch"), micro_batch,
                      to_string(plan.schedule));
  auto const shared =
      std::find_if(stages.begin(), stages.end(), [](Stage const& stage) { return stage.ranks.size() > 1; });
  return shared == stages.end() ? text : text + ", " + to_string(shared->zero);
}

std::string ranks_text(std::vector<int> const& ranks) {
  std::string text;
  for (std::size_t begin = 0; begin < ranks.size();) {
    auto end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - begin >= 4) {
      text += fmt::format("{}{}-{}", text.empty() ? "" : ",", ranks[begin], ranks[end - 1]);
      begin = end;
    } else {
      for (; begin < end; ++begin) text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[begin]);
    }
  }
  return text;
}

std::string largest_cause(MemoryPrediction const& memory, std::int64_t in_flight) {
  struct Cause {
    std::int64_t bytes;
    std::string name;
  };
  Cause const causes[] = {{memory.activations, "activations of " + count_text(in_flight, "micro-batch")},
                          {memory.optimizer_state, "optimizer state"},
                          {memory.weights, "weights"},
                          {memory.gradients, "gradients"},
                          {memory.gathered, "gathered layers"},
                          {memory.transient, "work of the largest layer"},
                          {memory.boundary, "gradients at the boundary"},
                          {memory.baseline, "the framework"}};
  return std::max_element(std::begin(causes), std::end(causes),
                          [](Cause const& a, Cause const& b) { return a.bytes < b.bytes; })
      ->name;
}

std::int64_t in_flight(Plan const& plan, int stage, int num_stages) {
  if (plan.schedule == ScheduleKind::gpipe) return plan.num_micro_batches;
  return std::min<std::int64_t>(plan.num_micro_batches, num_stages - stage);
}

std::string change_text(double from, double to) {
  double const percent = 100 * (to - from) / from;
  return fmt::format("{:+.{}f} %", percent, std::abs(percent) < 9.95 ? 1 : 0);
}

}  // namespace ballast::detail
