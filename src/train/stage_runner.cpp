// SPDX-License-Identifier: Apache-2.0
#include "stage_runner.hpp"

#include "ballast/base/assert.hpp"
#include "ballast/base/error.hpp"
#include "ballast/base/seed.hpp"
#include "ballast/device/tensor_types.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace ballast::detail {
namespace {

/// Tags of messages: one kind per block of 8192, a micro-batch each, so that a message of another micro-batch never fits.
enum class MessageKind : int { layout = 0, activation = 1, gradient = 2 };

int tag(MessageKind kind, int micro_batch = 0) { return static_cast<int>(kind) * 8192 + micro_batch % 8192; }

Stage const& stage_of(Plan const& plan, int stage) {
  return plan.replicas.front().stages.at(static_cast<std::size_t>(stage));
}

}  // namespace

LossTotals sum_over_ranks(Communicator& world, LossTotals totals) {
  std::array<double, 2> values{totals.sum, totals.weight};
  world.all_reduce(std::span<double>(values)).synchronize();
  return {values[0], values[1]};
}

/// The state of one pass. Local to `run`, so that an exception abandons requests while it unwinds.
struct StageRunner::Pass {
  SampleSource const& samples;
  PassOptions const& options;
  PassResult result = {};
  std::unordered_map<int, Flight> flights = {};  // by micro-batch
  TensorLayout sent_layout = {};                 // of the outputs; lives until the sends were waited for
  bool layout_is_sent = false;
  std::vector<TensorLayout::Entry> received = {};  // this rank's inputs of a micro-batch; empty before the first
  PendingSends last_sends = {};  // of gradients, in evaluation of activations: one micro-batch at most
};

StageRunner::StageRunner(Model const& model, Plan const& plan, int stage, Communicator& world, Communicator* group,
                         Pacer& pacer)
    : model_(model), plan_(plan), stage_(stage_of(plan, stage)), world_(world), group_(group), pacer_(pacer) {
  auto const position = static_cast<std::size_t>(group ? group->rank() : 0);
  BALLAST_ASSERT(stage_.ranks.at(position) == world.rank());
  samples_ = batch_intervals(stage_.batch_share).at(position);
  if (stage > 0) before_.emplace(world, samples_, stage_of(plan, stage - 1));
  if (stage + 1 < std::ssize(plan.replicas.front().stages)) after_.emplace(world, samples_, stage_of(plan, stage + 1));
}

void StageRunner::build(std::uint64_t seed, int num_states) {
  std::unordered_set<c10::TensorImpl const*> taken;
  for (int layer = stage_.layers.begin; layer < stage_.layers.end; ++layer) {
    auto const& name = model_.layer_name(layer);
    auto built = model_.build(layer, seed);
    for (auto const& parameter : built->parameters()) {
      if (taken.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
      throw InvalidArgument(
          fmt::format("layer {}: parameter {} belongs to another layer, too, or stands twice in this one; "
                      "a factory must build a new module each time, and tied parameters are not supported",
                      name, parameter.name));
    }
    translate_torch_errors(fmt::format("shards of layer {}", name), [&] {
      units_.emplace_back(name, std::move(built), plan_.dtype, stage_.shard_share, group_);
    });
  }
  for (auto& unit : units_) {
    translate_torch_errors(fmt::format("gradients and optimizer state of layer {}", unit.name()),
                           [&] { unit.allocate_training_state(num_states); });
  }
}

void StageRunner::set_training(bool training) {
  for (auto& unit : units_) unit.layer().set_training(training);
}

PassResult StageRunner::run(std::vector<Action> const& actions, SampleSource const& samples, PassOptions const& options,
                            std::string& doing) {
  at::NoGradGuard const not_recording;  // islands record by themselves
  Pass pass{.samples = samples, .options = options};
  if (options.training) {
    for (auto& unit : units_) unit.zero_gradients();
  }
  for (auto const& action : actions) {
    doing = describe(action);
    world_.check_failure();  // also moves messages on while this rank only computes
    translate_torch_errors(doing, [&] { execute(pass, action); });
  }
  doing = "the end of the pass";
  pass.last_sends.wait();  // for the next stage to have received the last activations of an evaluation
  return pass.result;
}

void StageRunner::execute(Pass& pass, Action const& action) {
  auto const communicate = [&](auto const& work) {
    double const start_s = wall_seconds();
    work();
    pass.result.communicate_s += wall_seconds() - start_s;
  };
  int const micro_batch = action.micro_batch;
  int const layer = action.layer;
  switch (action.kind) {
    case ActionKind::load:
      return load(pass, micro_batch);
    case ActionKind::receive_activation:
      return communicate([&] { receive_activation(pass, micro_batch); });
    case ActionKind::gather:
      return communicate([&] { units_[local(layer)].gather(); });
    case ActionKind::forward:
      return forward(pass, micro_batch, layer);
    case ActionKind::release:
      return units_[local(layer)].release();
    case ActionKind::send_activation:
      return communicate([&] { send_activation(pass, micro_batch); });
    case ActionKind::loss:
      return loss(pass, micro_batch);
    case ActionKind::receive_gradient:
      return communicate([&] { receive_gradient(pass, micro_batch); });
    case ActionKind::backward:
      return backward(pass, micro_batch, layer);
    case ActionKind::reduce:
      return communicate([&] { units_[local(layer)].reduce(); });
    case ActionKind::send_gradient:
      return communicate([&] { send_gradient(pass, micro_batch); });
    case ActionKind::update:
      return update(pass);
  }
}

void StageRunner::load(Pass& pass, int micro_batch) {
  auto& flight = pass.flights[micro_batch];
  flight.islands.resize(units_.size());
  if (samples_.size() > 0) flight.tensors = pass.samples.inputs(places(micro_batch));
}

void StageRunner::receive_activation(Pass& pass, int micro_batch) {
  auto& flight = pass.flights[micro_batch];
  flight.islands.resize(units_.size());
  if (samples_.size() == 0) return;
  // Once per pass: all samples of a data set have the same shapes, and so has everything computed from them.
  if (pass.received.empty()) pass.received = before_->receive_layout(tag(MessageKind::layout)).entries(samples_.size());
  for (auto const& entry : pass.received) flight.tensors.push_back(at::empty(entry.shape, entry.type));
  before_->receive(flight.tensors, tag(MessageKind::activation, micro_batch));
}

void StageRunner::forward(Pass& pass, int micro_batch, int layer) {
  if (samples_.size() == 0) return;
  auto& current = flight(pass, micro_batch);
  Layer& module = units_[local(layer)].layer();
  pacer_.run([&] {
    seed_layer(pass, micro_batch, layer);
    if (!pass.options.training) {
      current.tensors = forward_only(module, current.tensors);
      return;
    }
    bool const is_first = layer == stage_.layers.begin;
    Tensors inputs = is_first ? std::move(current.tensors) : current.islands[local(layer) - 1].outputs;
    Island& island = current.islands[local(layer)];
    if (recomputes(layer)) {
      island.outputs = forward_only(module, inputs);
      island.inputs = std::move(inputs);
    } else {
      island = forward_island(module, inputs, inputs_need_gradient(layer));
    }
  });
}

void StageRunner::send_activation(Pass& pass, int micro_batch) {
  auto& current = flight(pass, micro_batch);
  if (samples_.size() > 0) {
    auto const& tensors = outputs(pass, current);
    if (!pass.layout_is_sent) {
      pass.sent_layout = TensorLayout(tensors, samples_.size());
      after_->send_layout(pass.sent_layout, tag(MessageKind::layout), current.sends);
      pass.layout_is_sent = true;
    }
    after_->send(tensors, tag(MessageKind::activation, micro_batch), current.sends);
  }
  if (pass.options.training) return;
  // No gradient will come to say that the receiver is done; wait for it to have received the micro-batch before.
  pass.last_sends.wait();
  pass.last_sends = std::move(current.sends);
  pass.flights.erase(micro_batch);
}

void StageRunner::loss(Pass& pass, int micro_batch) {
  auto& current = flight(pass, micro_batch);
  if (samples_.size() > 0) {
    pacer_.run([&] {
      auto const targets = pass.samples.targets(places(micro_batch));
      auto const& tensors = outputs(pass, current);
      auto value = pass.options.training ? loss_and_gradient(model_.loss(), tensors, targets)
                                         : loss_only(model_.loss(), tensors, targets);
      pass.result.mine.sum += value.sum;
      pass.result.mine.weight += value.weight;
      current.gradients = std::move(value.output_gradients);
    });
  }
  if (!pass.options.training) pass.flights.erase(micro_batch);
}

void StageRunner::receive_gradient(Pass& pass, int micro_batch) {
  auto& current = flight(pass, micro_batch);
  // The next stage cannot send gradients before it has received the activations: this wait only lets go of the buffers.
  current.sends.wait();
  if (samples_.size() == 0) return;
  for (auto const& output : outputs(pass, current)) {
    // The next stage sends a gradient for every floating tensor, because it cannot know which of them need one here.
    current.gradients.push_back(
        output.is_floating_point() ? at::empty(output.sizes(), output.options().requires_grad(false)) : at::Tensor());
  }
  after_->receive(current.gradients, tag(MessageKind::gradient, micro_batch));
}

void StageRunner::backward(Pass& pass, int micro_batch, int layer) {
  auto& current = flight(pass, micro_batch);
  ShardUnit& unit = units_[local(layer)];
  unit.open_gradient();  // also without samples: the reduction sums over the whole group
  if (samples_.size() == 0) return;
  pacer_.run([&] {
    Island island = std::move(current.islands[local(layer)]);
    Tensors first_outputs;  // kept to the end, as the memory model counts them
    if (recomputes(layer)) {
      first_outputs = std::move(island.outputs);
      seed_layer(pass, micro_batch, layer);
      island = forward_island(unit.layer(), island.inputs, inputs_need_gradient(layer));
    }
    current.gradients = backward_island(std::move(island), std::exchange(current.gradients, {}));
  });
  if (layer == 0) pass.flights.erase(micro_batch);
}

void StageRunner::send_gradient(Pass& pass, int micro_batch) {
  pass.last_sends.wait();  // for the previous stage to have received the gradients of the micro-batch before
  if (samples_.size() > 0) {
    auto& current = flight(pass, micro_batch);
    auto gradients = std::move(current.gradients);
    for (std::size_t input = 0; input < gradients.size(); ++input) {
      // The previous stage expects a gradient for every floating tensor, also for one that the layer did not use.
      auto const& entry = pass.received[input];
      if (!gradients[input].defined() && c10::isFloatingType(entry.type))
        gradients[input] = at::zeros(entry.shape, entry.type);
    }
    before_->send(gradients, tag(MessageKind::gradient, micro_batch), pass.last_sends);
  }
  pass.flights.erase(micro_batch);
}

void StageRunner::update(Pass& pass) {
  double const start_s = wall_seconds();
  pass.last_sends.wait();  // for the previous stage to have received the last gradients
  // Waits for every rank of the job to have ended its last backward.
  pass.result.all = sum_over_ranks(world_, pass.result.mine);
  pass.result.communicate_s += wall_seconds() - start_s;
  double const weight = pass.result.all.weight;
  if (!(weight > 0.0)) return;  // the trainer refuses such a batch, on all ranks
  pacer_.run([&] {
    for (auto& unit : units_) unit.update(*pass.options.optimizer, 1.0 / weight, pass.options.update);
  });
}

StageRunner::Flight& StageRunner::flight(Pass& pass, int micro_batch) {
  auto const found = pass.flights.find(micro_batch);
  BALLAST_ASSERT(found != pass.flights.end());
  return found->second;
}

Tensors const& StageRunner::outputs(Pass const& pass, Flight const& flight) const {
  return pass.options.training ? flight.islands.back().outputs : flight.tensors;
}

Interval StageRunner::places(int micro_batch) const {
  auto const begin = micro_batch * stage_.micro_batch();
  return {begin + samples_.begin, begin + samples_.end};
}

void StageRunner::seed_layer(Pass const& pass, int micro_batch, int layer) const {
  auto seed = derive_seed(pass.options.seed, static_cast<std::uint64_t>(micro_batch));
  seed = derive_seed(seed, model_.layer_name(layer));
  seed_default_generator(derive_seed(seed, static_cast<std::uint64_t>(samples_.begin)));
}

bool StageRunner::recomputes(int layer) const {
  return std::binary_search(stage_.recompute.begin(), stage_.recompute.end(), layer);
}

std::string StageRunner::describe(Action const& action) const {
  std::string text = to_string(action.kind);
  if (action.layer >= 0) text += fmt::format(" of layer {}", model_.layer_name(action.layer));
  if (action.micro_batch >= 0) text += fmt::format(", micro-batch {}", action.micro_batch);
  return text;
}

}  // namespace ballast::detail
