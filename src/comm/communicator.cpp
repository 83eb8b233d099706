// SPDX-License-Identifier: Apache-2.0
// The argument checks that every back end and decorator can rely on.
#include "ballast/comm/communicator.hpp"

#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

void check_data(char const* operation, void const* data, std::int64_t count, DataType type) {
  if (count < 0) throw InvalidArgument(fmt::format("{}: expected a count >= 0, found {}", operation, count));
  if (size_of(type) == 0) throw InvalidArgument(fmt::format("{}: {} is unknown", operation, to_string(type)));
  if (data == nullptr && count > 0) {
    throw InvalidArgument(fmt::format("{}: no buffer for {} elements of {}", operation, count, to_string(type)));
  }
}

void check_tag(char const* operation, int tag) {
  if (tag < 0 || tag > 32767) {
    throw InvalidArgument(fmt::format("{}: expected a tag from 0 to 32767, found {}", operation, tag));
  }
}

std::int64_t sum(std::span<std::int64_t const> counts) {
  std::int64_t total = 0;
  for (auto count : counts) total += count;
  return total;
}

}  // namespace

void Communicator::check_gathered_size(std::int64_t mine, std::int64_t all) const {
  if (all != mine * size()) {
    throw InvalidArgument(fmt::format("all_gather: expected room for {} elements ({} ranks of {}), found {}",
                                      mine * size(), size(), mine, all));
  }
}

void Communicator::check_counts(char const* operation, std::span<std::int64_t const> counts) const {
  if (std::ssize(counts) != size()) {
    throw InvalidArgument(
        fmt::format("{}: expected one count for each of {} ranks, found {}", operation, size(), counts.size()));
  }
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0) {
      throw InvalidArgument(
          fmt::format("{}: expected counts >= 0, found {} for rank {}", operation, counts[rank], rank));
    }
  }
}

void Communicator::check_peer(char const* operation, char const* role, int peer) const {
  if (peer < 0 || peer >= size()) {
    throw InvalidArgument(fmt::format("{}: expected a {} from 0 to {}, found {}", operation, role, size() - 1, peer));
  }
}

Request Communicator::broadcast(void* data, std::int64_t count, DataType type, int root) {
  check_data("broadcast", data, count, type);
  check_peer("broadcast", "root", root);
  return do_broadcast(data, count, type, root);
}

Request Communicator::all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation) {
  check_data("all_reduce", data, count, type);
  return do_all_reduce(data, count, type, operation);
}

Request Communicator::all_gather(void const* mine, void* all, std::int64_t count, DataType type) {
  check_data("all_gather", mine, count, type);
  check_data("all_gather", all, count, type);
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(size()), count);
  return do_all_gather_v(mine, all, counts, type);
}

Request Communicator::all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts, DataType type) {
  check_counts("all_gather_v", counts);
  check_data("all_gather_v", mine, counts[static_cast<std::size_t>(rank())], type);
  check_data("all_gather_v", all, sum(counts), type);
  return do_all_gather_v(mine, all, counts, type);
}

Request Communicator::reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                                       DataType type) {
  check_counts("reduce_scatter_v", counts);
  check_data("reduce_scatter_v", all, sum(counts), type);
  check_data("reduce_scatter_v", mine, counts[static_cast<std::size_t>(rank())], type);
  return do_reduce_scatter_v(all, mine, counts, type);
}

Request Communicator::send(void const* data, std::int64_t count, DataType type, int destination, int tag) {
  check_data("send", data, count, type);
  check_peer("send", "destination", destination);
  check_tag("send", tag);
  return do_send(data, count, type, destination, tag);
}

Request Communicator::recv(void* data, std::int64_t count, DataType type, int source, int tag) {
  check_data("recv", data, count, type);
  check_peer("recv", "source", source);
  check_tag("recv", tag);
  return do_recv(data, count, type, source, tag);
}

void Communicator::barrier() { do_barrier(); }

}  // namespace ballast
