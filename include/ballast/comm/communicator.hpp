// SPDX-License-Identifier: Apache-2.0
/// A group of ranks that talk: the one interface behind which MPI, NCCL and the decorators stand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ballast/base/error.hpp"
#include "ballast/comm/data_type.hpp"
#include "ballast/comm/request.hpp"

namespace ballast {

enum class ReduceOperation : std::int32_t { sum, max, min };

/// A group of ranks 0..size-1 that talk to each other.
///
/// Counts are elements and int64; they are split inside where a library has int counts. Operations start and return a
/// `Request`; buffers belong to the operation until it was waited for. All ranks start collectives in the same order.
/// A blocking wait throws what another rank reported by `report_failure`, so that a failure never becomes a hang.
///
/// Example, 2 ranks, counts {3, 1}: `all_gather_v(mine, all, counts)` with 3 elements on rank 0 and 1 on rank 1 gives
/// both ranks the same 4 elements; `reduce_scatter_v(all, mine, counts)` gives rank 0 the sums of the first 3.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Returns the group of all ranks with the same `color`, ordered by (key, rank); nothing when `color` is negative.
  /// Collective over this communicator.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Returns the group of the ranks that share memory with this one. Collective over this communicator.
  virtual std::unique_ptr<Communicator> split_by_node() = 0;

  /// Tells every rank of the job that this rank failed: their blocking waits throw `kind` with `message`.
  /// Never blocks, never throws; afterwards nothing more may be started on any communicator of the job.
  virtual void report_failure(ErrorKind kind, std::string const& message) noexcept = 0;
  /// @throws the error that another rank has reported, if any. Local and cheap; long local work calls it.
  virtual void check_failure() = 0;

  template <class T>
  [[nodiscard]] Request broadcast(std::span<T> data, int root) {
    return broadcast(data.data(), std::ssize(data), DataTypeOf<T>::value, root);
  }
  /// In place.
  template <class T>
  [[nodiscard]] Request all_reduce(std::span<T> data, ReduceOperation operation = ReduceOperation::sum) {
    return all_reduce(data.data(), std::ssize(data), DataTypeOf<T>::value, operation);
  }
  /// @pre all.size() == mine.size() * size(), the same mine.size() on every rank
  template <class T>
  [[nodiscard]] Request all_gather(std::span<T const> mine, std::span<T> all) {
    check_gathered_size(std::ssize(mine), std::ssize(all));
    return all_gather(mine.data(), all.data(), std::ssize(mine), DataTypeOf<T>::value);
  }
  template <class T>
  [[nodiscard]] Request send(std::span<T const> data, int destination, int tag) {
    return send(data.data(), std::ssize(data), DataTypeOf<T>::value, destination, tag);
  }
  template <class T>
  [[nodiscard]] Request recv(std::span<T> data, int source, int tag) {
    return recv(data.data(), std::ssize(data), DataTypeOf<T>::value, source, tag);
  }

  /// Copies `count` elements of `root` to all. Collective over this communicator.
  [[nodiscard]] Request broadcast(void* data, std::int64_t count, DataType type, int root);
  /// Reduces `count` elements in place on all ranks. bfloat16 is summed in float32. Collective over this communicator.
  [[nodiscard]] Request all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation);
  /// Gathers `count` elements of each rank, in rank order. Collective over this communicator.
  [[nodiscard]] Request all_gather(void const* mine, void* all, std::int64_t count, DataType type);
  /// Gathers counts[r] elements of each rank r, in rank order; counts may be 0 and are equal on all ranks; `counts` is
  /// copied. `mine` may be its own place inside `all`. Collective over this communicator.
  [[nodiscard]] Request all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts, DataType type);
  /// Sums `all` over the ranks and leaves counts[rank()] elements, this rank's interval, in `mine`; the sum is taken in
  /// the same order each time, so equal inputs give equal bits. Collective over this communicator.
  [[nodiscard]] Request reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                                         DataType type);
  /// Sends to one rank; messages of one (source, tag) arrive in order. `tag` in [0, 32767].
  [[nodiscard]] Request send(void const* data, std::int64_t count, DataType type, int destination, int tag);
  /// Receives exactly `count` elements. @throws CommunicationError if another number arrives.
  [[nodiscard]] Request recv(void* data, std::int64_t count, DataType type, int source, int tag);
  /// Blocks until all ranks came here. Collective over this communicator.
  void barrier();

 protected:
  Communicator() = default;
  virtual Request do_broadcast(void* data, std::int64_t count, DataType type, int root) = 0;
  virtual Request do_all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation) = 0;
  virtual Request do_all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts,
                                  DataType type) = 0;
  virtual Request do_reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                                      DataType type) = 0;
  virtual Request do_send(void const* data, std::int64_t count, DataType type, int destination, int tag) = 0;
  virtual Request do_recv(void* data, std::int64_t count, DataType type, int source, int tag) = 0;
  virtual void do_barrier() = 0;

 private:
  void check_gathered_size(std::int64_t mine, std::int64_t all) const;
  void check_counts(char const* operation, std::span<std::int64_t const> counts) const;
  void check_peer(char const* operation, char const* role, int peer) const;
};

}  // namespace ballast
