// SPDX-License-Identifier: Apache-2.0
#include "infeasible.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/units.hpp"
#include "ballast/plan/memory_model.hpp"
#include "plan_text.hpp"
#include "search.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 49;

struct Problem {
  ModelProfile const& profile;
  Topology const& usable;  ///< without the reserve
  CollectiveProfile const& collectives;
  BalanceOptions const& options;
};

/// Plans with `more_bytes` more on every device.
std::optional<Solution> plan_with(Problem const& problem, std::int64_t more_bytes) {
  auto topology = problem.usable;
  for (auto& device : topology.devices) device.memory_bytes += more_bytes;
  auto found = search(problem.profile, topology, problem.collectives, problem.options, SearchGoal::any);
  return std::move(found.best);
}

/// The least memory more on every device with which a plan is found, to about 0.5 %, and that plan.
struct Needed {
  std::int64_t more_bytes = 0;
  Solution solution;
};

std::optional<Needed> least_more(Problem const& problem) {
  std::int64_t low = 0;
  std::int64_t high = 64 * kAllocationQuantum;
  std::optional<Solution> solution;
  for (; !(solution = plan_with(problem, high)); high *= 4) {
    if (high > kMostBytes) return {};
    low = high;
  }
  while (high - low > std::max(kAllocationQuantum, high / 256)) {
    auto const middle = low + (high - low) / 2;
    if (auto better = plan_with(problem, middle)) {
      high = middle;
      solution = std::move(better);
    } else {
      low = middle;
    }
  }
  return Needed{high, std::move(*solution)};
}

bool fits(Problem const& problem, BalanceOptions const& options) {
  Problem const changed{problem.profile, problem.usable, problem.collectives, options};
  return plan_with(changed, 0).has_value();
}

/// The first change of the options that makes a plan possible, else more memory.
std::string suggestion(Problem const& problem, std::int64_t more_bytes) {
  auto options = problem.options;
  if (!options.allow_recompute) {
    options.allow_recompute = true;
    if (fits(problem, options)) return "it fits if recompute is allowed";
    options = problem.options;
  }
  if (!options.micro_batches.empty()) {
    options.micro_batches.clear();
    if (fits(problem, options)) return "it fits with another micro-batch size (allow all divisors of the global batch)";
    options = problem.options;
  }
  if (options.num_stages || options.group_size) {
    options.num_stages.reset();
    options.group_size.reset();
    if (fits(problem, options)) return "it fits if stages and groups are left to the balancer";
    options = problem.options;
  }
  if (problem.options.optimizer == OptimizerKind::adamw) {
    options.optimizer = OptimizerKind::sgd_momentum;
    if (fits(problem, options)) return "it fits with sgd_momentum, which keeps one tensor of state less than adamw";
  }
  return fmt::format("it fits with {} more on every device", format_bytes(more_bytes));
}

}  // namespace

Solution nearest_or_throw(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                          BalanceOptions const& options) {
  auto const usable = without_reserve(topology, options.reserve);
  Problem const problem{profile, usable, collectives, options};
  auto const needed = least_more(problem);
  if (!needed)
    throw InfeasiblePlan("no plan fits, however much memory the devices have: fewer stages or other groups are needed");

  auto const& plan = needed->solution.plan;
  auto const memory = predict_memory(plan, profile, usable);
  auto const& stages = plan.replicas.front().stages;
  int worst_rank = -1;
  std::size_t worst_stage = 0;
  std::int64_t missing = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (int const rank : stages[stage].ranks) {
      auto const& peak = memory[static_cast<std::size_t>(rank)];
      if (worst_rank >= 0 && peak.peak() - peak.capacity <= missing) continue;
      missing = peak.peak() - peak.capacity;
      worst_rank = rank;
      worst_stage = stage;
    }
  }
  if (missing <= 0) return needed->solution;  // the search had passed it over: it is no more than nearly exact
  auto const& peak = memory[static_cast<std::size_t>(worst_rank)];
  auto const& layers = stages[worst_stage].layers;
  auto const name = [&](int layer) { return profile.layers[static_cast<std::size_t>(layer)].name; };
  throw InfeasiblePlan(
      fmt::format(
          "no plan fits: the nearest ({}) misses {} ({} bytes) on rank {} of stage {} (layers {}..{}), which needs {} "
          "of {}, "
          "most of it for {}; {} (verified by planning again)",
          shape_text(plan), format_bytes(missing), missing, worst_rank, worst_stage, name(layers.begin),
          name(layers.end - 1), format_bytes(peak.peak()), format_bytes(peak.capacity),
          largest_cause(peak, in_flight(plan, static_cast<int>(worst_stage), static_cast<int>(stages.size()))),
          suggestion(problem, needed->more_bytes)),
      missing);
}

}  // namespace ballast::detail
