// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/memory_model.hpp"

#include "ballast/base/assert.hpp"
#include "ballast/plan/shares.hpp"
#include "stage_actions.hpp"
#include "stage_memory.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace ballast {
namespace {

constexpr std::int64_t kModuleRoundingBytes = 16 * kAllocationQuantum;

/// Bytes of one layer on one rank.
struct LayerBytes {
  LayerPoint point;
  std::int64_t module = 0;  ///< while the layer is built
  std::int64_t whole = 0;   ///< all its weights, or gradients
  std::int64_t shard = 0;   ///< this rank's part of them
  bool recompute = false;
};

/// Walks through a step on one rank and remembers the moment of the peak.
class RankMemory {
 public:
  RankMemory(Plan const& plan, int stage, std::size_t local_rank, detail::LayerTable& table) {
    auto const& profile = table.profile();
    auto const& stages = plan.replicas.front().stages;
    auto const& self = stages[static_cast<std::size_t>(stage)];
    auto const samples = self.batch_share[local_rank];
    auto const& points = table.at(samples);
    auto const element = size_of(plan.dtype);
    begin_ = self.layers.begin;
    is_first_stage_ = stage == 0;
    shared_ = self.ranks.size() > 1;
    num_states_ = num_states(plan.optimizer);
    for (int layer = self.layers.begin; layer < self.layers.end; ++layer) {
      auto const num_parameters = profile.layers[static_cast<std::size_t>(layer)].num_parameters;
      auto const part = shard_intervals(num_parameters, self.shard_share, element)[local_rank];
      bool const recompute = std::binary_search(self.recompute.begin(), self.recompute.end(), layer);
      auto const module = round_allocation(num_parameters * size_of(DataType::float32)) +
                          (plan.dtype == DataType::float32 ? 0 : round_allocation(num_parameters * element)) +
                          (num_parameters > 0 ? kModuleRoundingBytes : 0);
      layers_.push_back({points[static_cast<std::size_t>(layer)], module, round_allocation(num_parameters * element),
                         round_allocation(part.size() * element), recompute});
    }
    input_ = is_first_stage_ ? round_allocation(samples * profile.input_bytes_per_sample)
                             : points[static_cast<std::size_t>(begin_) - 1].output_bytes;
    target_ = round_allocation(samples * profile.target_bytes_per_sample);
    loss_ = points.back();
    is_last_stage_ = self.layers.end == table.num_layers();
    output_gradient_ =
        is_last_stage_ ? loss_.input_gradient_bytes : detail::boundary_gradient_bytes(points, self.layers.end);
    baseline_ = profile.baseline_bytes;
  }

  /// Layers are built one after the other, before gradients and optimizer state exist.
  void construct() {
    now_ = {};
    now_.baseline = baseline_;
    for (auto const& layer : layers_) {
      now_.weights += layer.shard;
      rise(layer.module);
    }
    for (auto const& layer : layers_) {
      now_.gradients += layer.shard;
      now_.optimizer_state += num_states_ * layer.shard;
    }
    rise(0);
  }

  void apply(Action const& action) {
    switch (action.kind) {
      case ActionKind::load:
      case ActionKind::receive_activation:
        now_.activations += input_;
        break;
      case ActionKind::gather:
        now_.gathered += at(action).whole;
        break;
      case ActionKind::release:
        now_.gathered -= at(action).whole;
        break;
      case ActionKind::forward:
        forward(at(action));
        break;
      case ActionKind::loss:
        rise(target_ + loss_.forward_peak_bytes);
        hold_gradient(action.micro_batch, output_gradient_);
        break;
      case ActionKind::receive_gradient:
        hold_gradient(action.micro_batch, output_gradient_);
        break;
      case ActionKind::backward:
        backward(at(action), action.micro_batch, action.layer == begin_);
        break;
      case ActionKind::reduce:
        rise(at(action).shard);
        now_.gathered -= at(action).whole;
        break;
      case ActionKind::send_gradient:  // waits for the one before, so one buffer is in flight at most
        now_.boundary -= sending_;
        sending_ = std::exchange(gradients_[action.micro_batch], 0);
        break;
      case ActionKind::update:
        now_.boundary -= std::exchange(sending_, 0);
        break;
      case ActionKind::send_activation:
        break;  // from the saved outputs
    }
    rise(0);
  }

  MemoryPrediction const& peak() const noexcept { return peak_; }

  /// As if the forwards of so many more micro-batches had been run, and their backwards come after all others.
  void add_in_flight(std::int64_t num_micro_batches) {
    auto bytes = input_;
    for (auto const& layer : layers_) bytes += layer.recompute ? layer.point.output_bytes : layer.point.saved_bytes;
    now_.activations += num_micro_batches * bytes;
    if (is_last_stage_) now_.boundary += num_micro_batches * output_gradient_;
  }

 private:
  LayerBytes const& at(Action const& action) const { return layers_[static_cast<std::size_t>(action.layer - begin_)]; }

  void rise(std::int64_t bytes) {
    now_.transient = bytes;
    if (now_.peak() > peak_.peak()) peak_ = now_;
    now_.transient = 0;
  }

  void hold_gradient(int micro_batch, std::int64_t bytes) {
    auto& gradient = gradients_[micro_batch];
    now_.boundary += bytes - gradient;
    gradient = bytes;
  }

  void forward(LayerBytes const& layer) {
    rise(layer.recompute ? layer.point.forward_only_peak_bytes : layer.point.forward_peak_bytes);
    now_.activations += layer.recompute ? layer.point.output_bytes : layer.point.saved_bytes;
  }

  void backward(LayerBytes const& layer, int micro_batch, bool is_first) {
    if (shared_) now_.gathered += layer.whole;
    std::int64_t held = layer.point.saved_bytes;
    if (layer.recompute) {
      rise(layer.point.forward_peak_bytes);
      now_.activations += layer.point.saved_bytes;
      held += layer.point.output_bytes;
    }
    rise(layer.point.backward_peak_bytes);
    now_.activations -= held + (is_first ? input_ : 0);
    hold_gradient(micro_batch, is_first && is_first_stage_ ? 0 : layer.point.input_gradient_bytes);
  }

  std::vector<LayerBytes> layers_;
  int begin_ = 0;
  bool is_first_stage_ = false;
  bool is_last_stage_ = false;
  bool shared_ = false;
  int num_states_ = 0;
  std::int64_t input_ = 0;
  std::int64_t target_ = 0;
  std::int64_t output_gradient_ = 0;  ///< of one micro-batch, from the loss or the next stage
  std::int64_t baseline_ = 0;
  LayerPoint loss_;

  MemoryPrediction now_;
  MemoryPrediction peak_;
  /// By micro-batch, of the outputs of the layer whose backward is next; part of now_.boundary. Several under gpipe,
  /// whose last stage computes the losses of all micro-batches before the first backward.
  std::unordered_map<int, std::int64_t> gradients_;
  std::int64_t sending_ = 0;  ///< of the inputs, on its way to the previous stage; part of now_.boundary
};

}  // namespace

namespace detail {

std::vector<MemoryPrediction> stage_memory(Plan const& plan, int stage, Topology const& topology, LayerTable& table) {
  auto const shape = shape_of(plan, 0, stage);
  auto const& ranks = plan.replicas.front().stages[static_cast<std::size_t>(stage)].ranks;
  // A step with many micro-batches repeats itself. Under 1f1b two rounds of the steady state show all there is; under
  // gpipe three micro-batches do, with the others in flight before they begin.
  auto const ahead = plan.schedule == ScheduleKind::gpipe ? 1 : shape.num_stages - stage;
  auto const played = std::min<std::int64_t>(plan.num_micro_batches, ahead + 2);
  auto const others = plan.schedule == ScheduleKind::gpipe ? plan.num_micro_batches - played : 0;
  auto const actions = step_actions(shape, plan.schedule, played);
  std::vector<MemoryPrediction> result;
  for (std::size_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
    RankMemory memory(plan, stage, local_rank, table);
    memory.construct();
    memory.add_in_flight(others);
    for (auto const& action : actions) memory.apply(action);
    result.push_back(memory.peak());
    result.back().capacity = topology.devices[static_cast<std::size_t>(ranks[local_rank])].memory_bytes;
  }
  return result;
}

}  // namespace detail

std::vector<MemoryPrediction> predict_memory(Plan const& plan, ModelProfile const& profile, Topology const& topology) {
  BALLAST_ASSERT(plan.replicas.size() == 1 && plan.num_ranks() <= topology.num_ranks());
  std::vector<MemoryPrediction> result(topology.devices.size());
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    result[rank].baseline = profile.baseline_bytes;
    result[rank].capacity = topology.devices[rank].memory_bytes;
  }
  detail::LayerTable table(profile);
  auto const& stages = plan.replicas.front().stages;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    auto const peaks = detail::stage_memory(plan, static_cast<int>(stage), topology, table);
    for (std::size_t local_rank = 0; local_rank < peaks.size(); ++local_rank) {
      result[static_cast<std::size_t>(stages[stage].ranks[local_rank])] = peaks[local_rank];
    }
  }
  return result;
}

}  // namespace ballast
