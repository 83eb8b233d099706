// SPDX-License-Identifier: Apache-2.0
/// A flat buffer whose memory comes and goes while views of it stay valid.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ballast::detail {

/// `size` elements in one storage that can be freed and allocated again.
///
/// Views taken with `view` belong to the storage, not to its memory: after `free` they must not be read, after the next
/// `allocate` they show the new memory. So a tensor that autograd saved in forward is refilled for backward.
class FlatStorage {
 public:
  FlatStorage() = default;
  /// Allocates; the memory is not initialised.
  FlatStorage(std::int64_t size, c10::ScalarType type);

  /// Elements [begin, begin + the product of shape) in this shape.
  at::Tensor view(std::int64_t begin, c10::IntArrayRef shape) const;
  at::Tensor const& whole() const noexcept { return whole_; }

  bool is_allocated() const noexcept { return allocated_; }
  /// Takes memory, not initialised. @pre !is_allocated()
  void allocate();
  /// @pre is_allocated()
  void free();

 private:
  at::Tensor whole_;  // (size)
  bool allocated_ = false;
};

}  // namespace ballast::detail
