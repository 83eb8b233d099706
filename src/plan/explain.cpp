// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/explain.hpp"

#include "ballast/base/units.hpp"
#include "plan_text.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr std::size_t kWidth = 100;
constexpr int kBarWidth = 48;

using Row = std::vector<std::string>;

/// Columns as wide as their longest cell, two spaces between.
std::string table(std::vector<Row> const& rows) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string text;
  for (auto const& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += fmt::format("{:<{}}  ", row[column], widths[column]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// Breaks at spaces so that no line is longer than the page; further lines are indented.
std::string wrapped(std::string text) {
  std::string result;
  while (text.size() > kWidth) {
    auto const space = text.rfind(' ', kWidth);
    if (space == text.npos || space < 8) break;
    result += text.substr(0, space) + "\n";
    text = "    " + text.substr(space + 1);
  }
  return result + text + "\n";
}

/// "1.61 / 2.00 GiB": both in the unit of the capacity.
std::string of_capacity(std::int64_t bytes, std::int64_t capacity) {
  auto const whole = format_bytes(capacity);
  auto const unit = whole.substr(whole.find(' ') + 1);
  double const scale = unit == "TiB"   ? 0x1p40
                       : unit == "GiB" ? 0x1p30
                       : unit == "MiB" ? 0x1p20
                       : unit == "KiB" ? 0x1p10
                                       : 1.0;
  auto const decimals = whole.find('.') == whole.npos ? 0 : static_cast<int>(whole.find(' ') - whole.find('.') - 1);
  return fmt::format("{:.{}f} / {}", static_cast<double>(bytes) / scale, decimals, whole);
}

std::string layers_text(Plan const& plan, LayerRange const& layers) {
  auto const name = [&](int layer) {
    bool const known = layer >= 0 && layer < static_cast<int>(plan.layers.size());
    return known ? plan.layers[static_cast<std::size_t>(layer)] : fmt::format("{}", layer);
  };
  return layers.size() == 1 ? name(layers.begin) : fmt::format("{}..{}", name(layers.begin), name(layers.end - 1));
}

std::string samples_text(Stage const& stage) { return fmt::format("{}", fmt::join(stage.batch_share, "+")); }

/// "stage 0 recomputes 2 of 4 layers: embed, block1", or nothing.
std::string recompute_text(Plan const& plan, Stage const& stage, std::size_t number) {
  if (stage.recompute.empty()) return "";
  auto text = fmt::format("stage {} recomputes {} of {}", number, stage.recompute.size(),
                          detail::count_text(stage.layers.size(), "layer"));
  if (std::ssize(stage.recompute) == stage.layers.size()) return text + "\n";
  text += ":";
  for (int const layer : stage.recompute) text += " " + layers_text(plan, {layer, layer + 1}) + ",";
  text.pop_back();
  return wrapped(text);
}

/// The memory of the fullest rank of a stage; nullptr without predictions.
MemoryPrediction const* fullest(Plan const& plan, Stage const& stage) {
  MemoryPrediction const* result = nullptr;
  for (int const rank : stage.ranks) {
    if (rank < 0 || rank >= static_cast<int>(plan.predictions.ranks.size())) continue;
    auto const& memory = plan.predictions.ranks[static_cast<std::size_t>(rank)].memory;
    if (result == nullptr || static_cast<double>(memory.peak()) * static_cast<double>(result->capacity) >
                                 static_cast<double>(result->peak()) * static_cast<double>(memory.capacity)) {
      result = &memory;
    }
  }
  return result;
}

std::string headline(Plan const& plan) {
  auto text = "plan    " + detail::shape_text(plan);
  auto const& predictions = plan.predictions;
  if (predictions.ranks.empty()) return text + "\n";
  auto numbers = fmt::format("step {}, bubble {:.0f} %", format_seconds(predictions.step_s), 100 * predictions.bubble);
  if (predictions.lower_bound_s > 0) {
    numbers +=
        fmt::format(", bound {}, gap {:.1f} %", format_seconds(predictions.lower_bound_s), 100 * predictions.gap);
  }
  return text + (text.size() + 6 + numbers.size() > kWidth ? "\n        " : "      ") + numbers + "\n";
}

std::string stage_table(Plan const& plan) {
  auto const& predictions = plan.predictions;
  bool const predicted = !predictions.ranks.empty();
  bool has_stages = false;
  bool shows_samples = false;  // equal shares need no column: the headline says the micro-batch
  for (auto const& replica : plan.replicas) {
    for (auto const& stage : replica.stages) {
      has_stages = true;
      shows_samples = shows_samples || std::adjacent_find(stage.batch_share.begin(), stage.batch_share.end(),
                                                          std::not_equal_to<>()) != stage.batch_share.end();
    }
  }
  if (!has_stages) return "";
  std::vector<Row> rows = {{"stage", "ranks"}};
  if (shows_samples) rows[0].push_back("samples");
  rows[0].push_back("layers");
  if (predicted) rows[0].insert(rows[0].end(), {"time", "peak / memory", "limited by"});
  std::string recomputed;
  std::size_t number = 0;
  for (auto const& replica : plan.replicas) {
    for (std::size_t stage = 0; stage < replica.stages.size(); ++stage, ++number) {
      auto const& self = replica.stages[stage];
      Row row = {fmt::format("{}", stage), detail::ranks_text(self.ranks)};
      if (shows_samples) row.push_back(samples_text(self));
      row.push_back(layers_text(plan, self.layers));
      if (predicted && number < predictions.stages.size()) {
        auto const* memory = fullest(plan, self);
        row.push_back(format_seconds(predictions.stages[number].micro_batch_s));
        row.push_back(memory == nullptr ? "" : of_capacity(memory->peak(), memory->capacity));
        row.push_back(predictions.stages[number].limited_by);
      }
      rows.push_back(std::move(row));
      recomputed += recompute_text(plan, self, stage);
    }
  }
  return table(rows) + recomputed;
}

/// One letter per cause, on a scale common to all ranks; '|' stands where the memory ends.
std::string bar(MemoryPrediction const& memory, std::int64_t scale) {
  struct Part {
    char letter;
    std::int64_t bytes;
  };
  Part const parts[] = {{'W', memory.weights},   {'G', memory.gradients},   {'O', memory.optimizer_state},
                        {'L', memory.gathered},  {'A', memory.activations}, {'B', memory.boundary},
                        {'T', memory.transient}, {'F', memory.baseline}};
  auto const column = [&](std::int64_t bytes) {
    return static_cast<std::size_t>(std::lround(static_cast<double>(bytes) / static_cast<double>(scale) * kBarWidth));
  };
  std::string text;
  std::int64_t sum = 0;
  for (auto const& [letter, bytes] : parts) {
    sum += bytes;
    text.resize(std::max(text.size(), column(sum)), letter);
  }
  auto const end = column(memory.capacity);
  if (text.size() < end) text.resize(end, '.');
  text.insert(std::min(end, text.size()), 1, '|');
  text.resize(static_cast<std::size_t>(kBarWidth) + 1, ' ');
  return text;
}

std::string memory_bars(Plan const& plan) {
  auto const& ranks = plan.predictions.ranks;
  std::int64_t scale = 1;
  for (auto const& rank : ranks) scale = std::max({scale, rank.memory.capacity, rank.memory.peak()});
  std::vector<Row> rows = {{"rank", "memory by cause", "peak / memory", "computes", "waits"}};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    auto const& [memory, times] = ranks[rank];
    double const step = std::max(plan.predictions.step_s, 1e-300);
    rows.push_back({fmt::format("{}", rank), bar(memory, scale), of_capacity(memory.peak(), memory.capacity),
                    fmt::format("{:.0f} %", 100 * times.busy_s / step),
                    fmt::format("{:.0f} %", 100 * times.wait_s / step)});
  }
  return table(rows) +
         "      W weights, G gradients, O optimizer state, L gathered layers, A activations,\n"
         "      B gradients at the boundary, T work of the running layer, F framework, | end of memory\n";
}

}  // namespace

std::string explain(Plan const& plan) {
  auto text = headline(plan) + stage_table(plan);
  if (plan.predictions.ranks.empty()) return text;
  text += "\n" + memory_bars(plan);
  if (!plan.predictions.reasons.empty()) text += "\n";
  for (auto const& reason : plan.predictions.reasons) text += wrapped(reason);
  bool const said = std::any_of(plan.predictions.reasons.begin(), plan.predictions.reasons.end(),
                                [](std::string const& reason) { return reason.starts_with("links not measured"); });
  if (!plan.predictions.measured_collectives && !said && plan.predictions.ranks.size() > 1) {
    text += "links not measured: the times of messages are stated defaults\n";
  }
  return text;
}

}  // namespace ballast
