// SPDX-License-Identifier: Apache-2.0
/// One stage on one rank, and the interpreter of its actions.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "ballast/device/pace.hpp"
#include "ballast/model/island.hpp"
#include "ballast/model/model.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/plan/schedule.hpp"
#include "boundary.hpp"
#include "sample_source.hpp"
#include "shard_unit.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ballast::detail {

/// A loss over some samples; the mean is sum / weight.
struct LossTotals {
  double sum = 0.0;
  double weight = 0.0;
};

/// Returns the sum over all ranks. Collective over `world`.
LossTotals sum_over_ranks(Communicator& world, LossTotals totals);

/// What one pass over a list of actions is for.
struct PassOptions {
  bool training = true;                         ///< false: forward only
  std::uint64_t seed = 0;                       ///< of random numbers inside layers, such as dropout; differs by step
  std::int64_t update = 0;                      ///< number of the update that ends the pass, 1 is the first
  OptimizerOptions const* optimizer = nullptr;  ///< of that update
};

/// What a pass did.
struct PassResult {
  LossTotals mine;             ///< of this rank's samples
  LossTotals all;              ///< of all ranks' samples; after `update` only
  double communicate_s = 0.0;  ///< in gathers, reductions and waits
};

/// Runs the actions of a stage for one rank of its group, literally: the memory model counts along the same list.
class StageRunner {
 public:
  /// References outlive the runner. Local; builds nothing.
  StageRunner(Model const& model, Plan const& plan, int stage, Communicator& world, Communicator* group, Pacer& pacer);

  /// Builds layers and shards, then gradients and optimizer state. Local. @throws DeviceError if they do not fit.
  void build(std::uint64_t seed, int num_states);

  /// Takes the actions in order. Collective with the other stages. `doing` says after an exception what was being done.
  PassResult run(std::vector<Action> const& actions, SampleSource const& samples, PassOptions const& options,
                 std::string& doing);

  void set_training(bool training);
  std::vector<ShardUnit>& units() noexcept { return units_; }

 private:
  /// A micro-batch between its first and its last action on this rank.
  struct Flight {
    Tensors tensors;              ///< inputs of the next layer; in training of the first layer only
    std::vector<Island> islands;  ///< by layer of the stage, from forward to backward
    Tensors gradients;            ///< of the outputs of the layer whose backward comes next
    PendingSends sends;           ///< activations
  };
  struct Pass;

  void execute(Pass& pass, Action const& action);
  void load(Pass& pass, int micro_batch);
  void receive_activation(Pass& pass, int micro_batch);
  void forward(Pass& pass, int micro_batch, int layer);
  void send_activation(Pass& pass, int micro_batch);
  void loss(Pass& pass, int micro_batch);
  void receive_gradient(Pass& pass, int micro_batch);
  void backward(Pass& pass, int micro_batch, int layer);
  void send_gradient(Pass& pass, int micro_batch);
  void update(Pass& pass);

  Flight& flight(Pass& pass, int micro_batch);
  Tensors const& outputs(Pass const& pass, Flight const& flight) const;
  Interval places(int micro_batch) const;
  void seed_layer(Pass const& pass, int micro_batch, int layer) const;
  bool recomputes(int layer) const;
  /// The inputs of the model need no gradient, those of every later layer do.
  static bool inputs_need_gradient(int layer) noexcept { return layer > 0; }
  std::size_t local(int layer) const noexcept { return static_cast<std::size_t>(layer - stage_.layers.begin); }
  std::string describe(Action const& action) const;

  Model const& model_;
  Plan const& plan_;
  Stage const& stage_;
  Communicator& world_;
  Communicator* group_;  // null in a group of one rank
  Pacer& pacer_;
  Interval samples_;  // this rank's, in a micro-batch
  std::vector<ShardUnit> units_;
  std::optional<Boundary> before_;
  std::optional<Boundary> after_;
};

}  // namespace ballast::detail
