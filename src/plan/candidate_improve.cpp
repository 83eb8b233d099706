// SPDX-License-Identifier: Apache-2.0
/// Small changes of a plan, judged by the simulation.
#include "candidate.hpp"
#include "stage_fit.hpp"
#include "time_model.hpp"

#include <algorithm>

namespace ballast::detail {
namespace {

constexpr std::int64_t kPlayedInFull = 256;  // micro-batches

std::int64_t num_actions(Plan const& plan) {
  std::int64_t sum = 0;
  for (auto const& stage : plan.replicas.front().stages) {
    sum += std::min(plan.num_micro_batches, kPlayedInFull) * 6 * stage.layers.size() *
           static_cast<std::int64_t>(stage.ranks.size());
  }
  return sum;
}

}  // namespace

/// Changes one thing after the other as long as the simulated step gets shorter.
void CandidateSolver::improve(Solution& solution) {
  std::vector<std::vector<int>> units;
  for (auto const& unit_class : groupings_[solution.candidate.grouping].classes) {
    units.insert(units.end(), unit_class.units.begin(), unit_class.units.end());
  }
  while (move_boundaries(solution) || exchange_units(solution, units)) {
  }
}

/// Moves single layers over boundaries; true if one move helped.
bool CandidateSolver::move_boundaries(Solution& solution) {
  bool improved = false;
  auto const num_stages = static_cast<int>(stages_of(solution.plan).size());
  for (int boundary = 1; boundary < num_stages; ++boundary) {
    for (int const shift : {-1, 1}) {
      auto plan = solution.plan;
      auto& before = stages_of(plan)[static_cast<std::size_t>(boundary) - 1].layers;
      auto& after = stages_of(plan)[static_cast<std::size_t>(boundary)].layers;
      before.end += shift;
      after.begin += shift;
      if (before.size() > 0 && after.size() > 0)
        improved = accept(solution, std::move(plan), {boundary - 1, boundary}) || improved;
    }
  }
  return improved;
}

/// Lets two stages swap their groups, or puts an idle group in the place of another; true if one exchange helped.
bool CandidateSolver::exchange_units(Solution& solution, std::vector<std::vector<int>> const& units) {
  auto const devices = [&](std::vector<int> const& ranks) {
    std::vector<Device> result;
    result.reserve(ranks.size());
    for (int const rank : ranks) result.push_back(input_.topology.devices[static_cast<std::size_t>(rank)]);
    return result;
  };
  auto const num_stages = static_cast<int>(stages_of(solution.plan).size());
  for (int first = 0; first < num_stages; ++first) {
    for (int second = first + 1; second < num_stages; ++second) {
      auto plan = solution.plan;
      auto& one = stages_of(plan)[static_cast<std::size_t>(first)].ranks;
      auto& other = stages_of(plan)[static_cast<std::size_t>(second)].ranks;
      if (devices(one) == devices(other)) continue;  // on the same node, too: nothing changes
      std::swap(one, other);
      if (accept(solution, std::move(plan), {first, second})) return true;
    }
    for (auto const& unit : units) {
      auto plan = solution.plan;
      bool const is_idle = std::none_of(stages_of(plan).begin(), stages_of(plan).end(),
                                        [&](Stage const& stage) { return stage.ranks == unit; });
      auto& ranks = stages_of(plan)[static_cast<std::size_t>(first)].ranks;
      if (!is_idle || devices(ranks) == devices(unit)) continue;
      ranks = unit;
      if (accept(solution, std::move(plan), {first})) return true;
    }
  }
  return false;
}

/// Fits the changed stages anew; takes the plan if it fits and its step is shorter.
bool CandidateSolver::accept(Solution& solution, Plan plan, std::vector<int> const& changed) {
  if (actions_left_ <= 0) return false;
  actions_left_ -= num_actions(plan);
  for (int const number : changed) {
    auto& stage = stages_of(plan)[static_cast<std::size_t>(number)];
    stage = stage_on(stage.ranks, stage.layers, solution.candidate.micro_batch);
  }
  for (int const number : changed) {
    if (fit_stage(plan, number, input_) != 0) return false;
  }
  auto simulation = play(plan);
  if (!(simulation.step_s < solution.simulation.step_s)) return false;
  solution.plan = std::move(plan);
  solution.simulation = std::move(simulation);
  return true;
}

/// Long steps are continued from two shorter ones: once the pipeline is full, each micro-batch adds the same.
Simulation CandidateSolver::play(Plan const& plan) {
  ++num_simulated_;
  auto const simulated = [&](std::int64_t num_micro_batches) {
    auto shorter = plan;
    shorter.num_micro_batches = num_micro_batches;
    return detail::play(shorter, input_.topology, input_.layers, input_.links, false);
  };
  auto const period = kPlayedInFull / 4;
  auto const first = kPlayedInFull / 4 + 2 * std::ssize(plan.replicas.front().stages);
  if (plan.num_micro_batches <= std::max(kPlayedInFull, first + period)) return simulated(plan.num_micro_batches);

  auto const before = simulated(first);
  auto result = simulated(first + period);
  double const more = static_cast<double>(plan.num_micro_batches - first - period) / static_cast<double>(period);
  auto const go_on = [&](double& value, double earlier) { value += more * (value - earlier); };
  go_on(result.step_s, before.step_s);
  double waiting = 0;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    go_on(result.ranks[rank].busy_s, before.ranks[rank].busy_s);
    go_on(result.ranks[rank].communicate_s, before.ranks[rank].communicate_s);
    go_on(result.ranks[rank].wait_s, before.ranks[rank].wait_s);
    waiting += result.ranks[rank].wait_s;
  }
  if (result.step_s > 0) result.bubble = waiting / static_cast<double>(result.ranks.size()) / result.step_s;
  return result;
}

}  // namespace ballast::detail
