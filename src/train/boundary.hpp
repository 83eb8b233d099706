// SPDX-License-Identifier: Apache-2.0
/// Tensors between the groups of two neighbouring stages, point to point.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "ballast/model/layer.hpp"
#include "ballast/plan/plan.hpp"
#include "ballast/plan/shares.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ballast::detail {

/// Messages that were started; what they read from stays alive until they were waited for.
struct PendingSends {
  std::vector<at::Tensor> tensors;
  std::vector<Request> requests;

  /// Waits for the receivers to have taken every message (or MPI to have copied it), then frees.
  void wait();
};

/// Element types and shapes, without the samples, of the tensors that cross a boundary; they travel before the first message.
class TensorLayout {
 public:
  TensorLayout() = default;
  /// @throws InvalidArgument if there are too many tensors or dimensions, or dimension 0 of one is not `samples`.
  TensorLayout(Tensors const& tensors, std::int64_t samples);

  struct Entry {
    c10::ScalarType type;
    std::vector<std::int64_t> shape;  ///< dimension 0: samples
  };
  std::vector<Entry> entries(std::int64_t samples) const;

  /// What travels: the number of tensors, then per tensor its type, its number of dimensions after the first, and those.
  std::span<std::int64_t> numbers() noexcept { return numbers_; }
  friend bool operator==(TensorLayout const&, TensorLayout const&) = default;

 private:
  static constexpr std::int64_t kMaxTensors = 8;
  static constexpr std::int64_t kMaxDimensions = 8;
  std::array<std::int64_t, 1 + kMaxTensors*(2 + kMaxDimensions)> numbers_{};
};

/// One rank's side of the boundary to the stage before or after: who holds which of its samples.
///
/// Example: this rank has samples [0, 3) of a micro-batch of 4, the neighbouring group samples [0, 2) on rank 5 and
/// [2, 4) on rank 6. It exchanges its first two samples with rank 5 and its third with rank 6.
class Boundary {
 public:
  Boundary(Communicator& world, Interval mine, Stage const& neighbour);

  /// Starts to send dimension-0 slices of every defined tensor. Local.
  void send(Tensors const& tensors, int tag, PendingSends& sends);
  /// Starts to send a layout, which must outlive the wait for `sends`.
  void send_layout(TensorLayout& layout, int tag, PendingSends& sends);
  /// Waits for the layouts that the neighbours send; nothing if this rank has no samples.
  /// @throws Error if they differ.
  TensorLayout receive_layout(int tag);
  /// Fills every defined tensor, slice by slice. Waits for the neighbours to have sent.
  void receive(Tensors const& tensors, int tag);

 private:
  struct Piece {
    int rank = 0;
    Interval samples;  ///< counted from this rank's first
  };
  Communicator& world_;
  std::vector<Piece> pieces_;
};

}  // namespace ballast::detail
