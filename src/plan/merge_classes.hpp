// SPDX-License-Identifier: Apache-2.0
/// Fewer classes for the cut when a cluster has more kinds of groups than it can tell apart in time.
#pragma once

#include "unit_costs.hpp"

namespace ballast::detail {

/// Takes the most similar classes together until the cut has few enough states. A merged class costs at every layer
/// what the cheapest of its members costs and has the largest memory (`optimistic`, for bounds), or the dearest and the
/// smallest.
void merge_classes(GroupingCut& cut, bool optimistic);

}  // namespace ballast::detail
