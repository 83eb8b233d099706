// SPDX-License-Identifier: Apache-2.0
/// One layer on one rank: the module, and the part of its parameters that this rank keeps.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "ballast/model/layer.hpp"
#include "ballast/model/optimizer.hpp"
#include "ballast/plan/shares.hpp"
#include "flat_storage.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ballast::detail {

/// One parameter and where it lies in its layer's flat buffer.
struct UnitParameter {
  std::string name;   ///< in the layer
  at::Tensor tensor;  ///< the module's own; its data is a view of the flat weights
  std::vector<std::int64_t> shape;
  Interval place;       ///< elements in the flat buffer
  bool trained = true;  ///< false: requires no gradient, the update leaves it alone
};

/// What this rank keeps of one parameter.
struct KeptPart {
  Interval elements;     ///< of the parameter, in row-major order; may be empty
  ParameterShard shard;  ///< views of those elements: weights, gradients, states
};

/// The parameters of one layer in one flat buffer of N elements, of which each rank of the group keeps an interval.
///
/// In a group of one rank the flat buffer is there always: parameters are views of it, their `.grad` views of a flat
/// gradient buffer. In a larger group a rank keeps its interval (weights, gradients, states) and the whole flat buffers
/// exist only between `gather` and `release`, and between `open_gradient` and `reduce`.
///
/// Example: N = 100 float32 on 2 ranks with shares {3, 1}. Rank 0 keeps [0, 72). `gather` allocates 400 bytes and fills
/// them from both ranks; a backward adds to 400 bytes of gradients; `reduce` leaves rank 0 the sums of [0, 72).
class ShardUnit {
 public:
  /// Takes the built layer, copies this rank's part of its parameters as `type`, and frees the module's own memory.
  /// `group` is null in a group of one rank, else it outlives the unit. Local.
  ShardUnit(std::string name, std::unique_ptr<Layer> layer, DataType type, std::span<std::int64_t const> shard_share,
            Communicator* group);

  /// Allocates gradients and optimizer state, zero. Local.
  void allocate_training_state(int num_states);

  /// Makes the parameters whole. Collective over the group.
  void gather();
  /// Frees the whole parameters; views of them stay valid for the next `gather`.
  void release();
  /// Allocates the whole gradient, zero, if it is not there.
  void open_gradient();
  /// Adds the sum of the whole gradients to this rank's part and frees the whole one. Collective over the group.
  void reduce();

  void zero_gradients();
  /// Applies update number `step` with the gradients x `scale`.
  void update(OptimizerOptions const& optimizer, double scale, std::int64_t step);

  std::string const& name() const noexcept { return name_; }
  Layer& layer() noexcept { return *layer_; }
  std::int64_t num_elements() const noexcept { return num_elements_; }
  std::vector<std::int64_t> const& counts() const noexcept { return counts_; }
  std::vector<UnitParameter> const& parameters() const noexcept { return parameters_; }
  std::vector<KeptPart> const& kept() const noexcept { return kept_; }  ///< by parameter
  std::vector<NamedTensor> buffers() { return layer_->buffers(); }
  at::Tensor const& weights() const noexcept { return weights_; }  ///< this rank's part, (n)

 private:
  void lay_out();
  void copy_weights();
  void convert_buffers();

  std::string name_;
  std::unique_ptr<Layer> layer_;
  DataType type_;
  Communicator* group_;
  std::int64_t num_elements_ = 0;     // N
  std::vector<std::int64_t> counts_;  // by rank of the group
  Interval mine_;
  std::vector<UnitParameter> parameters_;
  std::vector<KeptPart> kept_;
  std::vector<ParameterShard> trained_;  // what updates are applied to
  at::Tensor weights_;                   // (n)
  at::Tensor gradients_;                 // (n)
  std::vector<at::Tensor> states_;       // (n) each
  FlatStorage whole_weights_;            // (N)
  FlatStorage whole_gradients_;          // (N)
};

}  // namespace ballast::detail
