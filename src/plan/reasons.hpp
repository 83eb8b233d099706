// SPDX-License-Identifier: Apache-2.0
/// Why a plan was chosen, and what would change it, in plain words.
#pragma once

#include "search.hpp"

#include <string>
#include <vector>

namespace ballast::detail {

/// Returns the lines that stand in `Predictions::reasons`; `plan` has its predictions.
std::vector<std::string> reasons(Plan const& plan, SearchResult const& found, ModelProfile const& profile,
                                 Topology const& topology, CollectiveProfile const& collectives,
                                 BalanceOptions const& options);

}  // namespace ballast::detail
