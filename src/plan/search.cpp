// SPDX-License-Identifier: Apache-2.0
#include "search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

namespace ballast::detail {
namespace {

constexpr int kMaxForRunnerUp = 16;             // candidates that are solved only because they may be the next best
constexpr std::int64_t kLargeProblem = 10'000;  // layers x ranks from which on one such candidate must do

/// The same groups run the same number of samples: only boundaries, schedule or shares differ.
bool same_shape(Solution const& a, Solution const& b) {
  auto const& first = a.plan.replicas.front().stages;
  auto const& second = b.plan.replicas.front().stages;
  return a.candidate.micro_batch == b.candidate.micro_batch &&
         std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](Stage const& x, Stage const& y) { return x.ranks.size() == y.ranks.size(); });
}

void take(SearchResult& result, Solution solution) {
  if (!result.best) {
    result.best = std::move(solution);
    return;
  }
  if (solution.simulation.step_s < result.best->simulation.step_s) std::swap(solution, *result.best);
  if (result.runner_up && same_shape(*result.runner_up, *result.best)) result.runner_up.reset();
  if (same_shape(solution, *result.best)) return;
  if (!result.runner_up || solution.simulation.step_s < result.runner_up->simulation.step_s) {
    result.runner_up = std::move(solution);
  }
}

}  // namespace

Topology without_reserve(Topology topology, double reserve) {
  for (auto& device : topology.devices) {
    device.memory_bytes =
        static_cast<std::int64_t>(std::floor(static_cast<double>(device.memory_bytes) * (1.0 - reserve)));
  }
  return topology;
}

SearchResult search(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                    BalanceOptions const& options, SearchGoal goal) {
  LayerTable layers(profile);
  LinkTable links(collectives);
  SearchInput const input{profile, topology, options, layers, links};
  CandidateSolver solver(input);
  // The candidate with the least bound comes first. It is solved if its bound is as tight as can be, else it is
  // tightened and waits again: most candidates never need more than their first bound.
  struct Waiting {
    Candidate candidate;
    std::size_t number = 0;  ///< among equal bounds the first
  };
  auto const is_later = [](Waiting const& a, Waiting const& b) {
    return std::tie(a.candidate.bound_s, a.number) > std::tie(b.candidate.bound_s, b.number);
  };
  std::priority_queue<Waiting, std::vector<Waiting>, decltype(is_later)> queue(is_later);
  for (auto const& candidate : solver.candidates()) queue.push({candidate, queue.size()});

  SearchResult result;
  std::vector<Candidate> unsolved;
  double const never = std::numeric_limits<double>::infinity();
  double lower_bound_s = never;
  int const most_extra = std::ssize(profile.layers) * topology.num_ranks() < kLargeProblem ? kMaxForRunnerUp : 1;
  for (int extra = 0; !queue.empty();) {
    auto [candidate, number] = queue.top();
    queue.pop();
    double const best_s = result.best ? result.best->simulation.step_s : never;
    bool const may_be_best = candidate.bound_s < best_s;
    if (!may_be_best) {
      double const next_s = result.runner_up ? result.runner_up->simulation.step_s : never;
      if (goal != SearchGoal::best || candidate.bound_s >= next_s || extra == most_extra) break;
    }
    int const enough = goal == SearchGoal::any ? CandidateSolver::kQuick : CandidateSolver::kTightest;
    if (candidate.tightness < enough) {
      if (solver.tighten(candidate)) queue.push({candidate, number});
      continue;
    }
    lower_bound_s = std::min(lower_bound_s, candidate.bound_s);
    extra += !may_be_best;
    auto solution = solver.solve(candidate, goal == SearchGoal::any ? 0.0 : best_s, false);
    unsolved.push_back(candidate);
    if (!solution) continue;
    take(result, std::move(*solution));
    if (goal == SearchGoal::any) break;
  }
  // Very tight memory: what the quick ways do not find may be there nevertheless.
  for (auto candidate = unsolved.begin(); goal == SearchGoal::best && !result.best && candidate != unsolved.end();
       ++candidate) {
    result.best = solver.solve(*candidate, never, true);
  }
  // The first candidate that was solved had the least bound of all.
  if (lower_bound_s < never) result.lower_bound_s = lower_bound_s;
  result.num_simulated = solver.num_simulated();
  return result;
}

}  // namespace ballast::detail
