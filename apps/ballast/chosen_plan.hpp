// SPDX-License-Identifier: Apache-2.0
/// Which plan a run uses: the one it was given, the one of the run before, or a new one.
#pragma once

#include "ballast/cluster/environment.hpp"
#include "ballast/model/model.hpp"
#include "ballast/plan/plan.hpp"
#include "run_config.hpp"

#include <string>

namespace ballast {

enum class NewPlan { keep, discard };  ///< whether topology, collectives, model and plan go to the checkpoint directory

/// Returns [plan] file if there is one (checked against model and settings), else plan.json of the checkpoint directory
/// if it is of this model, cluster and settings, else a new plan. Says on stderr which. Collective over the job.
/// @throws InvalidArgument, DataError, InfeasiblePlan on all ranks.
Plan choose_plan(Environment& environment, RunConfig const& config, Model const& model, Dataset const& data,
                 NewPlan new_plan);

/// Writes topology.json, collectives.json, model.json and plan.json. Collective over the job. @throws IoError.
void write_values(Environment& environment, AutoPlan const& values, std::filesystem::path const& directory);

}  // namespace ballast
