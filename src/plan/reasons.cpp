// SPDX-License-Identifier: Apache-2.0
#include "reasons.hpp"

#include "ballast/base/units.hpp"
#include "ballast/plan/memory_model.hpp"
#include "plan_text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;
constexpr std::int64_t kMaxLayersTimesRanks = 400;  // beyond, planning again takes too long for one more line

double mean_communication(std::vector<RankTimes> const& ranks, double step_s) {
  double sum = 0;
  for (auto const& times : ranks) sum += times.communicate_s;
  return sum / static_cast<double>(ranks.size()) / step_s;
}

std::size_t num_recomputed(Plan const& plan) {
  std::size_t count = 0;
  for (auto const& stage : plan.replicas.front().stages) count += stage.recompute.size();
  return count;
}

std::string pace(Plan const& plan) {
  auto const& stages = plan.predictions.stages;
  auto const slowest = std::max_element(stages.begin(), stages.end(),
                                        [](auto const& a, auto const& b) { return a.micro_batch_s < b.micro_batch_s; });
  if (stages.size() == 1)
    return fmt::format("one group takes {} for a micro-batch, without a bubble",
                       format_seconds(slowest->micro_batch_s));
  return fmt::format("stage {} sets the pace: {} for each of {}", slowest - stages.begin(),
                     format_seconds(slowest->micro_batch_s), count_text(plan.num_micro_batches, "micro-batch"));
}

/// What the runner-up pays more of than the best.
std::string why_slower(Solution const& runner_up, Solution const& best) {
  auto const& slower = runner_up.simulation;
  auto const& faster = best.simulation;
  double const communicating =
      mean_communication(slower.ranks, slower.step_s) - mean_communication(faster.ranks, faster.step_s);
  double const waiting = slower.bubble - faster.bubble;
  if (num_recomputed(runner_up.plan) > num_recomputed(best.plan)) {
    return fmt::format("its memory is short, so it recomputes {}",
                       count_text(static_cast<std::int64_t>(num_recomputed(runner_up.plan)), "layer"));
  }
  if (communicating > waiting && communicating > 0.01) {
    return fmt::format("its gathers and reductions take {:.0f} % of the step",
                       100 * mean_communication(slower.ranks, slower.step_s));
  }
  if (waiting > 0.01) return fmt::format("its ranks wait {:.0f} % of the step", 100 * slower.bubble);
  return "its layers run less efficiently at its sizes";
}

int tightest_rank(std::vector<RankPrediction> const& ranks, std::vector<Stage> const& stages) {
  int tightest = -1;
  double fullest = -1;
  for (auto const& stage : stages) {
    for (int const rank : stage.ranks) {
      auto const& memory = ranks[static_cast<std::size_t>(rank)].memory;
      double const level =
          static_cast<double>(memory.peak()) / static_cast<double>(std::max<std::int64_t>(1, memory.capacity));
      if (level > fullest) {
        fullest = level;
        tightest = rank;
      }
    }
  }
  return tightest;
}

std::string slack(Plan const& plan, int rank) {
  auto const& memory = plan.predictions.ranks[static_cast<std::size_t>(rank)].memory;
  auto const left = memory.capacity - memory.peak();
  return fmt::format(
      "tightest memory: rank {} keeps {} of {} free ({:.0f} %)", rank, format_bytes(left),
      format_bytes(memory.capacity),
      100.0 * static_cast<double>(left) / static_cast<double>(std::max<std::int64_t>(1, memory.capacity)));
}

/// Plans again with more memory for the group of the tightest rank.
std::string more_memory(Plan const& plan, int rank, ModelProfile const& profile, Topology topology,
                        CollectiveProfile const& collectives, BalanceOptions const& options) {
  auto const& stages = plan.replicas.front().stages;
  auto const stage = std::find_if(stages.begin(), stages.end(), [&](Stage const& candidate) {
    return std::find(candidate.ranks.begin(), candidate.ranks.end(), rank) != candidate.ranks.end();
  });
  auto const capacity = topology.devices[static_cast<std::size_t>(rank)].memory_bytes;
  auto const more = capacity < 4 * kGib ? capacity / 4 : kGib;
  for (int const member : stage->ranks) topology.devices[static_cast<std::size_t>(member)].memory_bytes += more;
  auto const found =
      search(profile, without_reserve(topology, options.reserve), collectives, options, SearchGoal::best_alone);
  auto const where = fmt::format("{} more on {} {}", format_bytes(more), stage->ranks.size() == 1 ? "rank" : "ranks",
                                 ranks_text(stage->ranks));
  double const now = plan.predictions.step_s;
  if (!found.best || found.best->simulation.step_s >= now * 0.999) return where + " would not make the step shorter";
  return fmt::format("{} would give {} ({})", where, format_seconds(found.best->simulation.step_s),
                     change_text(now, found.best->simulation.step_s));
}

/// What recompute is for: the bytes that are missing without it.
std::string without_recompute(Plan plan, ModelProfile const& profile, Topology const& topology) {
  auto const count = count_text(static_cast<std::int64_t>(num_recomputed(plan)), "layer");
  for (auto& stage : plan.replicas.front().stages) stage.recompute.clear();
  auto const memory = predict_memory(plan, profile, topology);
  auto const worst = std::max_element(memory.begin(), memory.end(), [](auto const& a, auto const& b) {
    return a.peak() - a.capacity < b.peak() - b.capacity;
  });
  auto const missing = worst->peak() - worst->capacity;
  if (missing <= 0) return fmt::format("{} recomputed to keep the reserve free", count);
  return fmt::format("{} recomputed: without it the plan misses {} on rank {}", count, format_bytes(missing),
                     worst - memory.begin());
}

}  // namespace

std::vector<std::string> reasons(Plan const& plan, SearchResult const& found, ModelProfile const& profile,
                                 Topology const& topology, CollectiveProfile const& collectives,
                                 BalanceOptions const& options) {
  auto const& stages = plan.replicas.front().stages;
  std::vector<std::string> lines;
  lines.push_back(pace(plan));
  if (found.runner_up) {
    double const slower = found.runner_up->simulation.step_s;
    lines.push_back(fmt::format("next best: {}, {}: {}", shape_text(found.runner_up->plan),
                                change_text(plan.predictions.step_s, slower),
                                why_slower(*found.runner_up, *found.best)));
  }
  int const rank = tightest_rank(plan.predictions.ranks, stages);
  lines.push_back(slack(plan, rank));
  if (num_recomputed(plan) > 0) lines.push_back(without_recompute(plan, profile, topology));
  auto const size = std::ssize(profile.layers) * topology.num_ranks();
  if (size <= kMaxLayersTimesRanks) lines.push_back(more_memory(plan, rank, profile, topology, collectives, options));
  std::vector<int> idle;
  for (int candidate = 0; candidate < topology.num_ranks(); ++candidate) {
    bool const used = std::any_of(stages.begin(), stages.end(), [&](Stage const& stage) {
      return std::find(stage.ranks.begin(), stage.ranks.end(), candidate) != stage.ranks.end();
    });
    if (!used) idle.push_back(candidate);
  }
  if (!idle.empty()) {
    lines.push_back(fmt::format("{} {}: no plan that uses {} was found to be faster",
                                idle.size() == 1 ? "idle rank" : "idle ranks", ranks_text(idle),
                                idle.size() == 1 ? "it" : "them"));
  }
  if (!collectives.measured && topology.num_ranks() > 1)
    lines.push_back("links not measured: the times of messages are stated defaults");
  return lines;
}

}  // namespace ballast::detail
