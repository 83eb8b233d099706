// SPDX-License-Identifier: Apache-2.0
/// Parts of plans in words, shared by explanations, reasons and errors.
#pragma once

#include "ballast/plan/plan.hpp"

#include <string>
#include <vector>

namespace ballast::detail {

/// "2 stages x 2 ranks, 8 micro-batches of 4, 1f1b, zero-3" (the ZeRO level only where a group has several ranks).
std::string shape_text(Plan const& plan);

/// "0,1" or, for four and more in a row, "0-7".
std::string ranks_text(std::vector<int> const& ranks);

/// What takes most of a peak: "optimizer state", "activations of 2 micro-batches", ...
std::string largest_cause(MemoryPrediction const& memory, std::int64_t in_flight);

/// Micro-batches in flight on stage `stage` of `num_stages`.
std::int64_t in_flight(Plan const& plan, int stage, int num_stages);

/// "+9 %", "-0.4 %": the change from `from` to `to`, with enough digits to tell it from nothing.
std::string change_text(double from, double to);

/// "2 ranks", "1 rank".
std::string count_text(std::int64_t count, std::string const& noun);

}  // namespace ballast::detail
