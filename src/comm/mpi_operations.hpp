// SPDX-License-Identifier: Apache-2.0
/// The operations of the MPI back end: sets of MPI requests, receives, and sums made by this rank itself.
#pragma once

#include "ballast/comm/communicator.hpp"
#include "mpi_world.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ballast::detail {

MPI_Datatype mpi_type(DataType type);
MPI_Op mpi_operation(ReduceOperation operation);

inline std::byte* at(void* data, std::int64_t element, DataType type) {
  return static_cast<std::byte*>(data) + element * size_of(type);
}
inline std::byte const* at(void const* data, std::int64_t element, DataType type) {
  return static_cast<std::byte const*>(data) + element * size_of(type);
}

/// Calls `visit(begin, length)` for pieces of [0, count) of at most `longest` elements.
template <class Visit>
void for_each_piece(std::int64_t count, std::int64_t longest, Visit const& visit) {
  for (std::int64_t begin = 0; begin < count; begin += longest) {
    visit(begin, static_cast<int>(count - begin < longest ? count - begin : longest));
  }
}

/// Calls `visit(begin, length)` for the messages of one transfer: pieces of `longest` elements, then a shorter one,
/// empty if need be. So sender and receiver that disagree about the count meet a wrong length, never a missing message.
template <class Visit>
void for_each_message(std::int64_t count, std::int64_t longest, Visit const& visit) {
  for (std::int64_t begin = 0;; begin += longest) {
    if (count - begin < longest) return visit(begin, static_cast<int>(count - begin));
    visit(begin, static_cast<int>(longest));
  }
}

/// Withdraws receives that no message has matched yet (a local call), so that MPI forgets their buffers.
void cancel_receive(MPI_Request& request) noexcept;

/// Complete when all its MPI requests are.
class MpiRequests final : public MpiOperation {
 public:
  using MpiOperation::MpiOperation;
  /// The place of one more request.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  // Arguments that MPI reads until the operation is complete.
  std::vector<int> int_counts;
  std::vector<int> int_offsets;

 private:
  bool advance() override;

  std::vector<MPI_Request> requests_;
  std::size_t next_ = 0;
};

/// A message being received; its length is checked.
class MpiReceive final : public MpiOperation {
 public:
  MpiReceive(std::shared_ptr<MpiWorld> world, void* data, std::int64_t count, DataType type, int source, int tag,
             MPI_Comm comm);
  ~MpiReceive() override;

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int length = 0;
  };
  bool advance() override;
  [[noreturn]] void fail(std::string const& what_arrived) const;

  std::vector<Message> messages_;
  std::size_t next_ = 0;
  std::int64_t count_;
  DataType type_;
  int source_;
  int tag_;
};

/// Where an operation of several phases takes place. `tag` is its own, so that several can be under way.
struct MpiPlace {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int tag = 0;
};

/// Reduces by direct exchange: every rank gets its interval from every other and sums in rank order.
///
/// Each rank sends and receives (p - 1) / p of the buffer, the least possible. The interval is worked on in segments,
/// so that the contributions in memory stay below 2 (p - 1) segments, whatever the size of the buffer.
/// With `gather` the reduced intervals are then exchanged in the same way: an all-reduce, in place.
class MpiReduceExchange final : public MpiOperation {
 public:
  /// `mine` is this rank's interval inside `all` when `gather` is set; `all` is then overwritten.
  MpiReduceExchange(std::shared_ptr<MpiWorld> world, MpiPlace place, void const* all, void* mine,
                    std::vector<std::int64_t> counts, DataType type, ReduceOperation operation, bool gather);
  ~MpiReduceExchange() override;

 private:
  static constexpr int kSegmentsInFlight = 2;
  enum class Phase { reduce, send_rest, gather };

  bool advance() override;
  void send_intervals();
  void receive_segment(std::int64_t segment);
  bool segment_arrived(std::int64_t segment);
  void reduce_segment(std::int64_t segment);
  void start_gather();
  std::int64_t segment_length(std::int64_t segment) const;
  std::byte* incoming(std::int64_t segment, int source);
  std::vector<MPI_Request>& receives(std::int64_t segment) {
    return receives_[static_cast<std::size_t>(segment % kSegmentsInFlight)];
  }

  MpiPlace place_;
  void const* all_;
  void* mine_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> offsets_;
  DataType type_;
  ReduceOperation operation_;
  bool gather_;

  Phase phase_ = Phase::reduce;
  std::int64_t segment_size_ = 0;  ///< elements
  std::int64_t num_segments_ = 0;  ///< of this rank's interval
  std::int64_t segment_ = 0;       ///< being received
  std::vector<std::byte> buffer_;  ///< (kSegmentsInFlight, p - 1, segment_size)
  std::vector<MPI_Request> receives_[kSegmentsInFlight];
  std::vector<MPI_Request> others_;  ///< sends, then also the receives of the gather phase
  std::size_t next_other_ = 0;
};

}  // namespace ballast::detail
