// SPDX-License-Identifier: Apache-2.0
#include "boundary.hpp"

#include "ballast/base/error.hpp"

#include <fmt/format.h>

namespace ballast::detail {
namespace {

/// Calls visit(data, bytes) with the bytes of samples [begin, end) of every tensor. Bytes, so that any element type can
/// travel: nothing is summed on the way.
template <class Visit>
void for_each_slice(Tensors const& tensors, Interval samples, Visit const& visit) {
  for (auto const& tensor : tensors) {
    if (!tensor.defined()) continue;
    auto const slice = tensor.narrow(0, samples.begin, samples.size());
    visit(slice.data_ptr(), static_cast<std::int64_t>(slice.nbytes()));
  }
}

}  // namespace

void PendingSends::wait() {
  for (auto& request : requests) request.wait();
  requests.clear();
  tensors.clear();
}

TensorLayout::TensorLayout(Tensors const& tensors, std::int64_t samples) {
  if (std::ssize(tensors) > kMaxTensors) {
    throw InvalidArgument(fmt::format("{} tensors between two layers; at most {} can cross to another stage",
                                      tensors.size(), kMaxTensors));
  }
  std::size_t next = 0;
  numbers_[next++] = std::ssize(tensors);
  for (auto const& tensor : tensors) {
    if (tensor.dim() < 1 || tensor.size(0) != samples || tensor.dim() - 1 > kMaxDimensions) {
      throw InvalidArgument(
          fmt::format("an output of {} dimensions with {} in the first; expected 1 to {} dimensions, the "
                      "first being the {} samples",
                      tensor.dim(), tensor.dim() < 1 ? 0 : tensor.size(0), 1 + kMaxDimensions, samples));
    }
    numbers_[next++] = static_cast<std::int64_t>(tensor.scalar_type());
    numbers_[next++] = tensor.dim() - 1;
    for (std::int64_t dimension = 1; dimension < tensor.dim(); ++dimension) numbers_[next++] = tensor.size(dimension);
  }
}

std::vector<TensorLayout::Entry> TensorLayout::entries(std::int64_t samples) const {
  std::vector<Entry> result;
  std::size_t next = 0;
  for (std::int64_t left = numbers_[next++]; left > 0; --left) {
    auto const type = static_cast<c10::ScalarType>(numbers_[next++]);
    std::vector<std::int64_t> shape{samples};
    for (std::int64_t dimensions = numbers_[next++]; dimensions > 0; --dimensions) shape.push_back(numbers_[next++]);
    result.push_back({type, std::move(shape)});
  }
  return result;
}

Boundary::Boundary(Communicator& world, Interval mine, Stage const& neighbour) : world_(world) {
  auto const theirs = batch_intervals(neighbour.batch_share);
  for (std::size_t position = 0; position < theirs.size(); ++position) {
    auto const common = intersect(mine, theirs[position]);
    if (common.size() == 0) continue;
    pieces_.push_back({neighbour.ranks[position], {common.begin - mine.begin, common.end - mine.begin}});
  }
}

void Boundary::send(Tensors const& tensors, int tag, PendingSends& sends) {
  if (pieces_.empty()) return;
  Tensors whole;
  for (auto const& tensor : tensors) whole.push_back(tensor.defined() ? tensor.contiguous() : tensor);
  for (auto const& piece : pieces_) {
    for_each_slice(whole, piece.samples, [&](void const* data, std::int64_t bytes) {
      sends.requests.push_back(world_.send(data, bytes, DataType::uint8, piece.rank, tag));
    });
  }
  sends.tensors.insert(sends.tensors.end(), whole.begin(), whole.end());
}

void Boundary::send_layout(TensorLayout& layout, int tag, PendingSends& sends) {
  for (auto const& piece : pieces_) {
    sends.requests.push_back(world_.send(std::span<std::int64_t const>(layout.numbers()), piece.rank, tag));
  }
}

TensorLayout Boundary::receive_layout(int tag) {
  TensorLayout first;
  for (auto const& piece : pieces_) {
    TensorLayout layout;
    world_.recv(layout.numbers(), piece.rank, tag).wait();
    if (piece.rank != pieces_.front().rank && layout != first) {
      throw Error(ErrorKind::failed,
                  fmt::format("ranks {} and {} sent tensors of different shapes", pieces_.front().rank, piece.rank));
    }
    first = layout;
  }
  return first;
}

void Boundary::receive(Tensors const& tensors, int tag) {
  std::vector<Request> requests;
  for (auto const& piece : pieces_) {
    for_each_slice(tensors, piece.samples, [&](void* data, std::int64_t bytes) {
      requests.push_back(world_.recv(data, bytes, DataType::uint8, piece.rank, tag));
    });
  }
  for (auto& request : requests) request.wait();
}

}  // namespace ballast::detail
