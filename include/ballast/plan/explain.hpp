// SPDX-License-Identifier: Apache-2.0
/// A plan in plain words.
#pragma once

#include <string>

#include "ballast/plan/plan.hpp"

namespace ballast {

/// Returns the table of docs and README: a headline, one row per stage (ranks, layers, time, peak / memory, what limits
/// it), the memory of every rank by cause with a bar, and the reasons. Without predictions only who does what.
std::string explain(Plan const& plan);

}  // namespace ballast
