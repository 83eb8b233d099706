// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/simulate.hpp"

#include "ballast/base/assert.hpp"
#include "ballast/base/error.hpp"
#include "ballast/plan/shares.hpp"
#include "time_model.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace ballast {
namespace detail {
namespace {

constexpr std::size_t kNumLinkLevels = 2;

/// Messages of one kind from one rank to another; the k-th carries micro-batch k.
struct Channel {
  std::size_t sender = 0;    ///< local rank in the sending stage
  std::size_t receiver = 0;  ///< local rank in the receiving stage
  LinkLevel level = LinkLevel::node;
  double latency = 0.0;   ///< seconds of an empty message
  double transfer = 0.0;  ///< seconds for which a message keeps its sender's link
  std::vector<double> arrivals;
};

/// Both directions over the boundary between two stages.
struct Boundary {
  std::vector<Channel> activations;
  std::vector<Channel> gradients;
};

/// Seconds of the layers of a stage. Per layer (from the stage's first on), or per local rank and layer.
struct StageSeconds {
  std::vector<double> gather;
  std::vector<double> reduce;
  std::vector<std::vector<double>> forward;
  std::vector<std::vector<double>> backward;
  std::vector<double> loss;    ///< per local rank
  std::vector<double> update;  ///< per local rank
};

struct StageState {
  std::vector<Action> actions;
  std::size_t next = 0;
  std::vector<double> clocks;  ///< per local rank
  StageSeconds seconds;
  std::vector<std::array<double, kNumLinkLevels>> link_is_free;  ///< per local rank and level: when
};

class Player {
 public:
  Player(Plan const& plan, Topology const& topology, LayerTable& layers, LinkTable& links, bool with_timeline)
      : topology_(topology),
        stages_(plan.replicas.front().stages),
        layers_(layers),
        links_(links),
        with_timeline_(with_timeline) {
    BALLAST_ASSERT(plan.replicas.size() == 1 && plan.num_ranks() <= topology.num_ranks());
    result_.ranks.resize(topology.devices.size());
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      states_.push_back({step_actions(plan, 0, static_cast<int>(stage)), 0,
                         std::vector<double>(stages_[stage].ranks.size(), 0.0), seconds_of(plan, stages_[stage]),
                         std::vector<std::array<double, kNumLinkLevels>>(stages_[stage].ranks.size())});
      result_.stage_micro_batch_s.push_back(micro_batch_seconds(stage, plan.num_micro_batches));
      if (stage > 0) boundaries_.push_back(boundary(stages_[stage - 1], stages_[stage]));
    }
  }

  Simulation run() {
    for (bool all_done = false, moved = true; !all_done; moved = false) {
      all_done = true;
      for (std::size_t stage = 0; stage < states_.size(); ++stage) {
        auto& state = states_[stage];
        for (; state.next < state.actions.size() && apply(stage, state.actions[state.next]); ++state.next) moved = true;
        all_done = all_done && state.next == state.actions.size();
      }
      if (!all_done && !moved) refuse_deadlock();
    }
    finish();
    return std::move(result_);
  }

 private:
  StageSeconds seconds_of(Plan const& plan, Stage const& stage) {
    auto const& profile = layers_.profile();
    auto const element = size_of(plan.dtype);
    auto const level = topology_.level(stage.ranks);
    auto const num_ranks = static_cast<int>(stage.ranks.size());
    StageSeconds result;
    std::vector<std::int64_t> parameters(stage.ranks.size(), 0);
    for (int layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      auto const whole = profile.layers[static_cast<std::size_t>(layer)].num_parameters;
      result.gather.push_back(num_ranks > 1 ? links_.seconds(Operation::all_gather, level, num_ranks, whole * element)
                                            : 0.0);
      result.reduce.push_back(
          num_ranks > 1 ? links_.seconds(Operation::reduce_scatter, level, num_ranks, whole * element) : 0.0);
      auto const parts = shard_intervals(whole, stage.shard_share, element);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) parameters[rank] += parts[rank].size();
    }
    for (std::size_t rank = 0; rank < stage.ranks.size(); ++rank) {
      auto const& points = layers_.at(stage.batch_share[rank]);
      double const slowness = topology_.dilation / topology_.devices[static_cast<std::size_t>(stage.ranks[rank])].speed;
      std::vector<double> forward;
      std::vector<double> backward;
      for (int layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
        auto const& point = points[static_cast<std::size_t>(layer)];
        bool const recompute = std::binary_search(stage.recompute.begin(), stage.recompute.end(), layer);
        forward.push_back(point.forward_s * slowness);
        backward.push_back((point.backward_s + (recompute ? point.forward_s : 0.0)) * slowness);
      }
      result.forward.push_back(std::move(forward));
      result.backward.push_back(std::move(backward));
      result.loss.push_back(points.back().forward_s * slowness);
      result.update.push_back(profile.update_s_per_parameter * static_cast<double>(parameters[rank]) * slowness);
    }
    return result;
  }

  /// Forward, backward and collectives of one micro-batch on the slowest rank; ranks meet at every collective. Gathers,
  /// some of which are left out, are a mean over the micro-batches.
  double micro_batch_seconds(std::size_t stage, std::int64_t num_micro_batches) const {
    auto const& [actions, next, clocks, seconds, link_is_free] = states_[stage];
    double gathers = 0;
    for (auto const& action : actions) {
      if (action.kind == ActionKind::gather) gathers += seconds.gather[local_layer(stage, action)];
    }
    double total = gathers / static_cast<double>(num_micro_batches);
    for (std::size_t layer = 0; layer < seconds.gather.size(); ++layer) {
      double forward = 0;
      double backward = 0;
      for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
        forward = std::max(forward, seconds.forward[rank][layer]);
        backward = std::max(backward, seconds.backward[rank][layer]);
      }
      total += forward + backward + seconds.reduce[layer];
    }
    bool const is_last = stages_[stage].layers.end == layers_.num_layers();
    return total + (is_last ? *std::max_element(seconds.loss.begin(), seconds.loss.end()) : 0.0);
  }

  std::size_t local_layer(std::size_t stage, Action const& action) const {
    return static_cast<std::size_t>(action.layer - stages_[stage].layers.begin);
  }

  Boundary boundary(Stage const& before, Stage const& after) {
    Boundary result;
    auto const senders = batch_intervals(before.batch_share);
    auto const receivers = batch_intervals(after.batch_share);
    for (std::size_t sender = 0; sender < senders.size(); ++sender) {
      for (std::size_t receiver = 0; receiver < receivers.size(); ++receiver) {
        auto const samples = intersect(senders[sender], receivers[receiver]).size();
        if (samples == 0) continue;
        auto const level = topology_.level({before.ranks[sender], after.ranks[receiver]});
        auto const& points = layers_.at(samples);
        auto const activation = points[static_cast<std::size_t>(before.layers.end) - 1].output_bytes;
        auto const gradient = boundary_gradient_bytes(points, before.layers.end);
        double const latency = links_.seconds(Operation::send, level, 2, 1);
        auto const transfer = [&](std::int64_t bytes) {
          return std::max(0.0, links_.seconds(Operation::send, level, 2, bytes) - latency);
        };
        result.activations.push_back({sender, receiver, level, latency, transfer(activation), {}});
        result.gradients.push_back({receiver, sender, level, latency, transfer(gradient), {}});
      }
    }
    return result;
  }

  /// Returns false if the action has to wait for a message that was not sent yet.
  bool apply(std::size_t stage, Action const& action) {
    auto const& seconds = states_[stage].seconds;
    auto const layer = local_layer(stage, action);
    switch (action.kind) {
      case ActionKind::load:
      case ActionKind::release:
        each(stage, action, [](std::size_t) { return 0.0; });
        return true;
      case ActionKind::gather:
        together(stage, action, seconds.gather[layer]);
        return true;
      case ActionKind::reduce:
        together(stage, action, seconds.reduce[layer]);
        return true;
      case ActionKind::forward:
        each(stage, action, [&](std::size_t rank) { return seconds.forward[rank][layer]; });
        return true;
      case ActionKind::backward:
        each(stage, action, [&](std::size_t rank) { return seconds.backward[rank][layer]; });
        return true;
      case ActionKind::loss:
        each(stage, action, [&](std::size_t rank) { return seconds.loss[rank]; });
        return true;
      case ActionKind::update:
        each(stage, action, [&](std::size_t rank) { return seconds.update[rank]; });
        return true;
      case ActionKind::send_activation:
        send(stage, action, boundaries_[stage].activations);
        return true;
      case ActionKind::send_gradient:
        send(stage, action, boundaries_[stage - 1].gradients);
        return true;
      case ActionKind::receive_activation:
        return receive(stage, action, boundaries_[stage - 1].activations);
      case ActionKind::receive_gradient:
        return receive(stage, action, boundaries_[stage].gradients);
    }
    return true;
  }

  RankTimes& times(std::size_t stage, std::size_t local_rank) {
    return result_.ranks[static_cast<std::size_t>(stages_[stage].ranks[local_rank])];
  }

  void record(std::size_t stage, std::size_t local_rank, Action const& action, double begin_s) {
    if (with_timeline_) {
      result_.timeline.push_back(
          {stages_[stage].ranks[local_rank], action, begin_s, states_[stage].clocks[local_rank]});
    }
  }

  template <class Seconds>
  void each(std::size_t stage, Action const& action, Seconds const& seconds) {
    auto& clocks = states_[stage].clocks;
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
      double const begin = clocks[rank];
      double const duration = seconds(rank);
      clocks[rank] = begin + duration;
      times(stage, rank).busy_s += duration;
      record(stage, rank, action, begin);
    }
  }

  void together(std::size_t stage, Action const& action, double seconds) {
    auto& clocks = states_[stage].clocks;
    auto const level = static_cast<std::size_t>(topology_.level(stages_[stage].ranks));
    double start = 0;
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
      start = std::max({start, clocks[rank], states_[stage].link_is_free[rank][level]});
    }
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
      double const begin = clocks[rank];
      clocks[rank] = start + seconds;
      times(stage, rank).communicate_s += seconds;
      record(stage, rank, action, begin);
    }
  }

  void send(std::size_t stage, Action const& action, std::vector<Channel>& channels) {
    auto const& clocks = states_[stage].clocks;
    for (auto& channel : channels) {
      double& is_free = states_[stage].link_is_free[channel.sender][static_cast<std::size_t>(channel.level)];
      is_free = std::max(clocks[channel.sender], is_free) + channel.transfer;
      channel.arrivals.push_back(is_free + channel.latency);
    }
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) record(stage, rank, action, clocks[rank]);
  }

  bool receive(std::size_t stage, Action const& action, std::vector<Channel> const& channels) {
    auto const micro_batch = static_cast<std::size_t>(action.micro_batch);
    for (auto const& channel : channels) {
      if (channel.arrivals.size() <= micro_batch) return false;
    }
    auto& clocks = states_[stage].clocks;
    auto const begins = clocks;
    for (auto const& channel : channels) {
      clocks[channel.receiver] = std::max(clocks[channel.receiver], channel.arrivals[micro_batch]);
    }
    for (std::size_t rank = 0; rank < clocks.size(); ++rank) record(stage, rank, action, begins[rank]);
    return true;
  }

  [[noreturn]] void refuse_deadlock() const {
    std::string waiting;
    for (std::size_t stage = 0; stage < states_.size(); ++stage) {
      auto const& state = states_[stage];
      if (state.next == state.actions.size()) continue;
      auto const& action = state.actions[state.next];
      waiting += fmt::format("{} stage {} at {} of micro-batch {}", waiting.empty() ? "" : ",", stage,
                             to_string(action.kind), action.micro_batch);
    }
    throw InvalidArgument("the schedule deadlocks:" + waiting);
  }

  void finish() {
    for (auto const& state : states_) {
      for (double const clock : state.clocks) result_.step_s = std::max(result_.step_s, clock);
    }
    double waiting = 0;
    for (auto& rank : result_.ranks) {
      rank.wait_s = std::max(0.0, result_.step_s - rank.busy_s - rank.communicate_s);
      waiting += rank.wait_s;
    }
    if (result_.step_s > 0) result_.bubble = waiting / static_cast<double>(result_.ranks.size()) / result_.step_s;
  }

  Topology const& topology_;
  std::vector<Stage> const& stages_;
  LayerTable& layers_;
  LinkTable& links_;
  bool with_timeline_;
  std::vector<StageState> states_;
  std::vector<Boundary> boundaries_;  ///< index: the stage before
  Simulation result_;
};

}  // namespace

Simulation play(Plan const& plan, Topology const& topology, LayerTable& layers, LinkTable& links, bool with_timeline) {
  return Player(plan, topology, layers, links, with_timeline).run();
}

}  // namespace detail

Simulation simulate(Plan const& plan, ModelProfile const& profile, Topology const& topology,
                    CollectiveProfile const& collectives) {
  detail::LayerTable layers(profile);
  detail::LinkTable links(collectives);
  return detail::play(plan, topology, layers, links, true);
}

}  // namespace ballast
