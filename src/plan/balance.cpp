// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/balance.hpp"

#include "balance_input.hpp"
#include "infeasible.hpp"
#include "reasons.hpp"
#include "search.hpp"

#include <algorithm>

namespace ballast {

Plan balance(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
             BalanceOptions const& options) {
  detail::check_balance_input(profile, topology, collectives, options);
  auto found = detail::search(profile, detail::without_reserve(topology, options.reserve), collectives, options,
                              detail::SearchGoal::best);
  if (!found.best) found.best = detail::nearest_or_throw(profile, topology, collectives, options);

  auto plan = found.best->plan;
  plan.model = fingerprint(profile);
  plan.topology = fingerprint(topology);
  for (auto const& layer : profile.layers) plan.layers.push_back(layer.name);
  predict(plan, profile, topology, collectives);
  auto& predictions = plan.predictions;
  predictions.lower_bound_s =
      std::min(found.lower_bound_s, predictions.step_s);  // they may differ by rounding when equal
  predictions.gap = predictions.lower_bound_s > 0
                        ? (predictions.step_s - predictions.lower_bound_s) / predictions.lower_bound_s
                        : 0.0;
  predictions.num_candidates = found.num_simulated;
  predictions.reasons = detail::reasons(plan, found, profile, topology, collectives, options);
  return plan;
}

}  // namespace ballast
