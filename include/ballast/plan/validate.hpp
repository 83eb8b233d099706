// SPDX-License-Identifier: Apache-2.0
/// Names every fault of a plan before it is run.
#pragma once

#include <string>
#include <vector>

#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/plan/plan.hpp"

namespace ballast {

/// Returns what is wrong with the plan itself for a model with these layers on `num_ranks` ranks; empty when it can run:
/// each layer exactly once per replica, names equal, each rank in one stage, shares of the right length and sum,
/// micro-batches that cover the batch, a schedule that does not deadlock. Also names what this version does not run
/// (several replicas, ZeRO below 3 in groups).
std::vector<std::string> structural_faults(Plan const& plan, std::vector<std::string> const& layers, int num_ranks);

/// Returns structural faults and, when there are none, ranks whose predicted peak exceeds their memory, and fingerprints
/// that belong to another model or topology.
std::vector<std::string> faults(Plan const& plan, ModelProfile const& profile, Topology const& topology);

/// @throws InvalidArgument listing all structural faults.
void require_runnable(Plan const& plan, std::vector<std::string> const& layers, int num_ranks);

}  // namespace ballast
