// SPDX-License-Identifier: Apache-2.0
#include "flat_storage.hpp"

#include "ballast/base/assert.hpp"

#include <numeric>

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

namespace ballast::detail {

FlatStorage::FlatStorage(std::int64_t size, c10::ScalarType type) : whole_(at::empty({size}, type)), allocated_(true) {}

at::Tensor FlatStorage::view(std::int64_t begin, c10::IntArrayRef shape) const {
  // LibTorch compares a view's bounds with the memory that is there.
  BALLAST_ASSERT(allocated_);
  auto const size = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return whole_.narrow(0, begin, size).view(shape);
}

void FlatStorage::allocate() {
  BALLAST_ASSERT(!allocated_);
  at::native::resize_bytes_cpu(whole_.storage().unsafeGetStorageImpl(),
                               static_cast<std::size_t>(whole_.numel()) * whole_.element_size());
  allocated_ = true;
}

void FlatStorage::free() {
  BALLAST_ASSERT(allocated_);
  at::native::resize_bytes_cpu(whole_.storage().unsafeGetStorageImpl(), 0);
  allocated_ = false;
}

}  // namespace ballast::detail
