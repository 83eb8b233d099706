// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/balance.hpp"
#include "ballast/plan/memory_model.hpp"
#include "cost_table.hpp"
#include "plan_text.hpp"
#include "time_model.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr double kTight = 0.9;      // share of the memory from which on memory is what limits,
constexpr double kTightened = 0.7;  // the same where layers are recomputed already
constexpr double kSlowest = 0.95;   // share of the slowest stage's time from which on time is

double fill_level(MemoryPrediction const& memory) {
  return static_cast<double>(memory.peak()) / static_cast<double>(std::max<std::int64_t>(1, memory.capacity));
}

/// What keeps stage `stage` from doing better.
std::string limit(Plan const& plan, int stage, std::vector<MemoryPrediction> const& memory,
                  std::vector<double> const& seconds) {
  auto const& stages = plan.replicas.front().stages;
  auto const& self = stages[static_cast<std::size_t>(stage)];
  auto const tightest = *std::max_element(self.ranks.begin(), self.ranks.end(), [&](int a, int b) {
    return fill_level(memory[static_cast<std::size_t>(a)]) < fill_level(memory[static_cast<std::size_t>(b)]);
  });
  auto const& peak = memory[static_cast<std::size_t>(tightest)];
  if (fill_level(peak) >= (self.recompute.empty() ? kTight : kTightened)) {
    return "memory: " + detail::largest_cause(peak, detail::in_flight(plan, stage, static_cast<int>(stages.size())));
  }
  auto const slowest = std::max_element(seconds.begin(), seconds.end());
  if (seconds[static_cast<std::size_t>(stage)] >= kSlowest * *slowest) return "time";
  return fmt::format("waits for stage {}", slowest - seconds.begin());
}

}  // namespace

void predict(Plan& plan, ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives) {
  detail::LayerTable layers(profile);
  detail::LinkTable links(collectives);
  auto const simulation = detail::play(plan, topology, layers, links, false);
  auto const memory = predict_memory(plan, profile, topology);

  auto& predictions = plan.predictions;
  predictions.step_s = simulation.step_s;
  predictions.bubble = simulation.bubble;
  predictions.measured_collectives = collectives.measured;
  predictions.ranks.clear();
  for (std::size_t rank = 0; rank < memory.size(); ++rank)
    predictions.ranks.push_back({memory[rank], simulation.ranks[rank]});
  predictions.stages.clear();
  for (std::size_t stage = 0; stage < simulation.stage_micro_batch_s.size(); ++stage) {
    predictions.stages.push_back({simulation.stage_micro_batch_s[stage],
                                  limit(plan, static_cast<int>(stage), memory, simulation.stage_micro_batch_s)});
  }
}

}  // namespace ballast
