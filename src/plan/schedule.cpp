// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/schedule.hpp"

#include "ballast/base/error.hpp"
#include "stage_actions.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ballast {
namespace {

/// Builds the actions of one stage, phase by phase.
class ActionList {
 public:
  explicit ActionList(detail::StageShape const& shape)
      : stage_(shape.stage), num_stages_(shape.num_stages), layers_(shape.layers), shared_(shape.shared) {}

  void forward_phase(int micro_batch) {
    add(stage_ == 0 ? ActionKind::load : ActionKind::receive_activation, micro_batch);
    for (int layer = layers_.begin; layer < layers_.end; ++layer) {
      gather(micro_batch, layer);
      add(ActionKind::forward, micro_batch, layer);
      release(micro_batch, layer);
    }
    add(stage_ == num_stages_ - 1 ? ActionKind::loss : ActionKind::send_activation, micro_batch);
  }

  void backward_phase(int micro_batch) {
    if (stage_ < num_stages_ - 1) add(ActionKind::receive_gradient, micro_batch);
    for (int layer = layers_.end - 1; layer >= layers_.begin; --layer) {
      gather(micro_batch, layer);
      add(ActionKind::backward, micro_batch, layer);
      release(micro_batch, layer);  // before the reduction, which does not need the weights
      if (shared_) add(ActionKind::reduce, micro_batch, layer);
    }
    if (stage_ > 0) add(ActionKind::send_gradient, micro_batch);
  }

  void update() { add(ActionKind::update, -1); }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(ActionKind kind, int micro_batch, int layer = -1) { actions_.push_back({kind, micro_batch, layer}); }

  void release(int micro_batch, int layer) {
    if (shared_) add(ActionKind::release, micro_batch, layer);
  }

  void gather(int micro_batch, int layer) {
    if (!shared_) return;
    // Weights that were released a moment ago, with only local work since, are kept instead.
    for (auto action = actions_.rbegin(); action != actions_.rend(); ++action) {
      if (action->kind == ActionKind::release) {
        if (action->layer != layer) break;
        actions_.erase(std::next(action).base());
        return;
      }
      bool const is_local = action->kind == ActionKind::load || action->kind == ActionKind::loss ||
                            (action->kind == ActionKind::reduce && action->layer == layer);
      if (!is_local) break;
    }
    add(ActionKind::gather, micro_batch, layer);
  }

  int stage_;
  int num_stages_;
  LayerRange layers_;
  bool shared_;
  std::vector<Action> actions_;
};

}  // namespace

std::string to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::load:
      return "load";
    case ActionKind::receive_activation:
      return "receive_activation";
    case ActionKind::gather:
      return "gather";
    case ActionKind::forward:
      return "forward";
    case ActionKind::release:
      return "release";
    case ActionKind::send_activation:
      return "send_activation";
    case ActionKind::loss:
      return "loss";
    case ActionKind::receive_gradient:
      return "receive_gradient";
    case ActionKind::backward:
      return "backward";
    case ActionKind::reduce:
      return "reduce";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::update:
      return "update";
  }
  return "unknown";
}

std::vector<Phase> phases(ScheduleKind kind, int stage, int num_stages, std::int64_t num_micro_batches) {
  if (num_micro_batches < 1 || stage < 0 || stage >= num_stages) {
    throw InvalidArgument(
        fmt::format("no schedule for stage {} of {} with {} micro-batches", stage, num_stages, num_micro_batches));
  }
  std::int64_t const ahead =
      kind == ScheduleKind::gpipe ? num_micro_batches : std::min<std::int64_t>(num_micro_batches, num_stages - stage);
  std::vector<Phase> result;
  result.reserve(2 * static_cast<std::size_t>(num_micro_batches));
  for (std::int64_t next = 0; next < ahead; ++next) result.push_back({true, static_cast<int>(next)});
  for (std::int64_t next = 0; next < num_micro_batches; ++next) {
    result.push_back({false, static_cast<int>(next)});
    if (next + ahead < num_micro_batches) result.push_back({true, static_cast<int>(next + ahead)});
  }
  return result;
}

std::vector<Action> step_actions(Plan const& plan, int replica, int stage) {
  return detail::step_actions(detail::shape_of(plan, replica, stage), plan.schedule, plan.num_micro_batches);
}

std::vector<Action> evaluation_actions(Plan const& plan, int replica, int stage, std::int64_t num_micro_batches) {
  ActionList list(detail::shape_of(plan, replica, stage));
  for (std::int64_t next = 0; next < num_micro_batches; ++next) list.forward_phase(static_cast<int>(next));
  return list.take();
}

namespace detail {

StageShape shape_of(Plan const& plan, int replica, int stage) {
  auto const num_replicas = static_cast<int>(plan.replicas.size());
  if (replica < 0 || replica >= num_replicas) {
    throw InvalidArgument(fmt::format("the plan has no replica {} (it has {})", replica, num_replicas));
  }
  auto const& stages = plan.replicas[static_cast<std::size_t>(replica)].stages;
  auto const num_stages = static_cast<int>(stages.size());
  if (stage < 0 || stage >= num_stages) {
    throw InvalidArgument(fmt::format("replica {} has no stage {} (it has {})", replica, stage, num_stages));
  }
  auto const& self = stages[static_cast<std::size_t>(stage)];
  return {stage, num_stages, self.layers, self.ranks.size() > 1};
}

std::vector<Action> step_actions(StageShape const& shape, ScheduleKind schedule, std::int64_t num_micro_batches) {
  ActionList list(shape);
  for (auto const& phase : phases(schedule, shape.stage, shape.num_stages, num_micro_batches)) {
    if (phase.is_forward) {
      list.forward_phase(phase.micro_batch);
    } else {
      list.backward_phase(phase.micro_batch);
    }
  }
  list.update();
  return list.take();
}

}  // namespace detail

}  // namespace ballast
