// SPDX-License-Identifier: Apache-2.0
/// Schedules are data: the list of actions that the runtime interprets, the simulator times and the memory model
/// counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/plan/plan.hpp"

namespace ballast {

/// What a rank of a stage does next. In brackets: what it allocates and frees, see memory_model.hpp.
enum class ActionKind : std::int32_t {
  load,                ///< stage 0: this rank's inputs of the micro-batch
  receive_activation,  ///< from the previous stage, by intersections of batch intervals
  gather,              ///< whole weights of one layer, from the shards of the group
  forward,             ///< one layer
  release,             ///< whole weights of one layer
  send_activation,     ///< to the next stage; the outputs stay until their backward
  loss,                ///< last stage: loads targets, computes the loss and the gradient of the outputs
  receive_gradient,    ///< of the outputs, from the next stage
  backward,            ///< one layer, recomputing its forward first where the plan says so
  reduce,              ///< sums one layer's gradients over the group into the shards and frees the whole gradient
  send_gradient,       ///< of the inputs, to the previous stage; waits for the one before
  update,              ///< waits for the last send, then the optimizer on all shards
};

struct Action {
  ActionKind kind = ActionKind::update;
  int micro_batch = -1;  ///< -1: none
  int layer = -1;        ///< index in the model; -1: none
  friend bool operator==(Action const&, Action const&) = default;
};

std::string to_string(ActionKind kind);

/// One phase of a micro-batch on a stage.
struct Phase {
  bool is_forward = true;
  int micro_batch = 0;
  friend bool operator==(Phase const&, Phase const&) = default;
};

/// Returns the order of forwards and backwards on stage `stage` of `num_stages`.
/// gpipe (Huang et al. 2019): all forwards, then all backwards in the same order of micro-batches.
/// 1f1b (Narayanan et al. 2019, PipeDream-flush): min(M, S - stage) forwards, then backward and forward in turns, then
/// the remaining backwards; min(M, S - stage) micro-batches are in flight.
std::vector<Phase> phases(ScheduleKind kind, int stage, int num_stages, std::int64_t num_micro_batches);

/// Returns the actions of one step of stage `stage` of `replica`, the same for every rank of its group.
/// Groups of one rank have no gather, release and reduce. In a backward, release comes before reduce. A release and the
/// next gather are left out together when they are of the same layer with only local work between them (load, loss, the
/// layer's own reduce): the last layer around its loss, and layer 0 between a backward and the forward after it.
/// @throws InvalidArgument if there is no such replica or stage
std::vector<Action> step_actions(Plan const& plan, int replica, int stage);

/// Returns the actions of a forward-only pass (evaluation): no backward, `loss` without gradient, no update.
std::vector<Action> evaluation_actions(Plan const& plan, int replica, int stage, std::int64_t num_micro_batches);

}  // namespace ballast
