// SPDX-License-Identifier: Apache-2.0
/// A simulated step as a picture: the JSON that chrome://tracing and ui.perfetto.dev show.
#pragma once

#include "ballast/plan/simulate.hpp"

#include <string>
#include <vector>

namespace ballast {

/// Returns the timeline in the Chrome trace event format ("Trace Event Format", complete events, microseconds): one row
/// per rank, one box per action. `layers` are the names of the model's layers.
std::string to_chrome_trace(std::vector<TimelineEntry> const& timeline, std::vector<std::string> const& layers);

}  // namespace ballast
