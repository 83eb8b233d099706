// SPDX-License-Identifier: Apache-2.0
/// What to say when nothing fits.
#pragma once

#include "search.hpp"

namespace ballast::detail {

/// Looks for the plan that misses least. Returns it in the rare case that it fits after all, which the search had not seen.
/// @throws InfeasiblePlan naming the tightest stage and rank of the plan that misses least, the missing bytes, and one
/// change with which planning again succeeded.
Solution nearest_or_throw(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                          BalanceOptions const& options);

}  // namespace ballast::detail
