// SPDX-License-Identifier: Apache-2.0
/// The time model: a step played through, action by action, before it is run.
#pragma once

#include <vector>

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/plan/schedule.hpp"

namespace ballast {

/// One action on one rank, in seconds from the start of the step. Waiting for a message or for partners lies inside.
struct TimelineEntry {
  int rank = 0;
  Action action;
  double begin_s = 0.0;
  double end_s = 0.0;
};

struct Simulation {
  double step_s = 0.0;
  double bubble = 0.0;                      ///< mean over ranks of wait_s / step_s
  std::vector<RankTimes> ranks;
  std::vector<double> stage_micro_batch_s;  ///< per stage: forward, backward and collectives of one micro-batch, slowest rank
  std::vector<TimelineEntry> timeline;
};

/// Plays one step of `plan`: each rank takes its actions in order; computing takes the profile's seconds at its batch share
/// x dilation / speed; gathers and reductions start when the whole group is there and take `collectives.seconds`; the
/// messages and collectives of a rank on one level of links follow each other, except that latencies of messages overlap;
/// sends do not block. The update takes update_s_per_parameter x the rank's parameters. The step ends when the last rank has
/// updated. A rank in no stage waits all the time.
/// @throws InvalidArgument if the actions deadlock.  @pre the plan is structurally valid
Simulation simulate(Plan const& plan, ModelProfile const& profile, Topology const& topology,
                    CollectiveProfile const& collectives);

}  // namespace ballast
