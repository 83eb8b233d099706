// SPDX-License-Identifier: Apache-2.0
/// The simulation behind `simulate`, with tables that live longer than one plan and a timeline only where it is wanted.
#pragma once

#include "ballast/plan/simulate.hpp"
#include "cost_table.hpp"

namespace ballast::detail {

/// As `simulate`; `with_timeline` false leaves the timeline empty, which the balancer does for its thousands of plans.
Simulation play(Plan const& plan, Topology const& topology, LayerTable& layers, LinkTable& links, bool with_timeline);

}  // namespace ballast::detail
