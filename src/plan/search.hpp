// SPDX-License-Identifier: Apache-2.0
/// The search over all candidates, the best bound first.
#pragma once

#include "candidate.hpp"

#include <cstdint>
#include <optional>

namespace ballast::detail {

struct SearchResult {
  std::optional<Solution> best;       ///< nothing: no candidate fits
  std::optional<Solution> runner_up;  ///< the best of another shape (groups, stages or micro-batch), if there is one
  double lower_bound_s = 0.0;         ///< no plan of any candidate has a shorter step
  std::int64_t num_simulated = 0;
};

enum class SearchGoal {
  best,        ///< the best plan and its runner-up
  best_alone,  ///< the best plan
  any,         ///< the first plan that fits
};

/// The memory in `topology` is what plans may use. @throws InvalidArgument if no micro-batch divides the batch.
SearchResult search(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                    BalanceOptions const& options, SearchGoal goal);

/// Returns the topology with `reserve` of each device's memory left out.
Topology without_reserve(Topology topology, double reserve);

}  // namespace ballast::detail
