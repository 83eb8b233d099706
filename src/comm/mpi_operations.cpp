// SPDX-License-Identifier: Apache-2.0
#include "mpi_operations.hpp"

#include "ballast/base/assert.hpp"
#include "reduce.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

/// Bytes that one of `size` ranks contributes to a segment: few enough to stay in cache until they are summed, and, with
/// many ranks, to keep all contributions together small. The same on all ranks.
std::int64_t segment_bytes(int size) {
  constexpr std::int64_t largest_buffer = 8 << 20;
  return std::clamp<std::int64_t>(largest_buffer / (2 * (size - 1)), 4 << 10, 256 << 10);
}

/// Tests requests from `next` on, in order; returns true when all are complete.
bool all_complete(std::vector<MPI_Request>& requests, std::size_t& next) {
  for (; next < requests.size(); ++next) {
    int done = 0;
    BALLAST_CHECK_MPI(MPI_Test(&requests[next], &done, MPI_STATUS_IGNORE));
    if (done == 0) return false;
  }
  return true;
}

}  // namespace

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return MPI_UINT8_T;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::int64:
      return MPI_INT64_T;
    case DataType::bfloat16:
      return MPI_UINT16_T;  // moved only, never summed by MPI
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_operation(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::sum:
      return MPI_SUM;
    case ReduceOperation::max:
      return MPI_MAX;
    case ReduceOperation::min:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

void cancel_receive(MPI_Request& request) noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (request == MPI_REQUEST_NULL || finalized != 0) return;
  MPI_Cancel(&request);
  MPI_Request_free(&request);
}

bool MpiRequests::advance() { return all_complete(requests_, next_); }

MpiReceive::MpiReceive(std::shared_ptr<MpiWorld> world, void* data, std::int64_t count, DataType type, int source,
                       int tag, MPI_Comm comm)
    : MpiOperation(std::move(world)), count_(count), type_(type), source_(source), tag_(tag) {
  for_each_message(count, this->world().max_count(), [&](std::int64_t begin, int length) {
    auto& message = messages_.emplace_back(Message{MPI_REQUEST_NULL, length});
    BALLAST_CHECK_MPI(MPI_Irecv(at(data, begin, type), length, mpi_type(type), source, tag, comm, &message.request));
  });
}

MpiReceive::~MpiReceive() {
  for (auto& message : messages_) cancel_receive(message.request);
}

bool MpiReceive::advance() {
  for (; next_ < messages_.size(); ++next_) {
    auto& message = messages_[next_];
    int done = 0;
    MPI_Status status;
    int const code = MPI_Test(&message.request, &done, &status);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) fail("a longer message");
    check_mpi(code, "MPI_Irecv");
    if (done == 0) return false;
    int length = 0;
    BALLAST_CHECK_MPI(MPI_Get_count(&status, mpi_type(type_), &length));
    if (length != message.length) {
      auto const before = static_cast<std::int64_t>(next_) * world().max_count();
      fail(length == MPI_UNDEFINED ? "a message of another type" : fmt::format("{} elements", before + length));
    }
  }
  return true;
}

void MpiReceive::fail(std::string const& what_arrived) const {
  throw CommunicationError(fmt::format("recv from rank {} with tag {}: expected {} elements of {}, found {}", source_,
                                       tag_, count_, to_string(type_), what_arrived));
}

MpiReduceExchange::MpiReduceExchange(std::shared_ptr<MpiWorld> world, MpiPlace place, void const* all, void* mine,
                                     std::vector<std::int64_t> counts, DataType type, ReduceOperation operation,
                                     bool gather)
    : MpiOperation(std::move(world)),
      place_(place),
      all_(all),
      mine_(mine),
      counts_(std::move(counts)),
      offsets_(counts_.size(), 0),
      type_(type),
      operation_(operation),
      gather_(gather) {
  std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), std::int64_t{0});
  auto const mine_count = counts_[static_cast<std::size_t>(place_.rank)];
  segment_size_ = std::min(segment_bytes(place_.size) / size_of(type_), this->world().max_count());
  num_segments_ = (mine_count + segment_size_ - 1) / segment_size_;
  auto const segments = std::min<std::int64_t>(kSegmentsInFlight, num_segments_);
  auto const longest = std::min(segment_size_, mine_count);
  buffer_ =
      this->world().take_buffer(static_cast<std::size_t>(segments * (place_.size - 1) * longest * size_of(type_)));
  this->world().add_phased(this);
  for (std::int64_t segment = 0; segment < segments; ++segment) receive_segment(segment);
  send_intervals();
}

MpiReduceExchange::~MpiReduceExchange() {
  world().remove_phased(this);
  if (has_completed()) {
    world().give_buffer(std::move(buffer_));
  } else {
    for (auto& requests : receives_) {
      for (auto& request : requests) cancel_receive(request);
    }
    new std::vector<std::byte>(std::move(buffer_));  // leaked on purpose: MPI may be in the middle of writing to it
  }
}

std::int64_t MpiReduceExchange::segment_length(std::int64_t segment) const {
  auto const mine_count = counts_[static_cast<std::size_t>(place_.rank)];
  return std::min(segment_size_, mine_count - segment * segment_size_);
}

std::byte* MpiReduceExchange::incoming(std::int64_t segment, int source) {
  auto const longest = std::min(segment_size_, counts_[static_cast<std::size_t>(place_.rank)]);
  auto const row = segment % kSegmentsInFlight * (place_.size - 1) + (source < place_.rank ? source : source - 1);
  return at(static_cast<void*>(buffer_.data()), row * longest, type_);
}

void MpiReduceExchange::send_intervals() {
  // Each rank begins with its right neighbour, so that no rank is sent to by all others at once.
  for (int shift = 1; shift < place_.size; ++shift) {
    int const destination = (place_.rank + shift) % place_.size;
    auto const offset = offsets_[static_cast<std::size_t>(destination)];
    for_each_piece(counts_[static_cast<std::size_t>(destination)], segment_size_, [&](std::int64_t begin, int length) {
      BALLAST_CHECK_MPI(MPI_Isend(at(all_, offset + begin, type_), length, mpi_type(type_), destination, place_.tag,
                                  place_.comm, &others_.emplace_back(MPI_REQUEST_NULL)));
    });
  }
}

void MpiReduceExchange::receive_segment(std::int64_t segment) {
  auto& requests = receives(segment);
  requests.clear();
  for (int shift = 1; shift < place_.size; ++shift) {
    int const source = (place_.rank + place_.size - shift) % place_.size;
    BALLAST_CHECK_MPI(MPI_Irecv(incoming(segment, source), static_cast<int>(segment_length(segment)), mpi_type(type_),
                                source, place_.tag, place_.comm, &requests.emplace_back(MPI_REQUEST_NULL)));
  }
}

bool MpiReduceExchange::segment_arrived(std::int64_t segment) {
  for (auto& request : receives(segment)) {
    if (request == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Status status;
    BALLAST_CHECK_MPI(MPI_Test(&request, &done, &status));
    if (done == 0) return false;
    int length = 0;
    BALLAST_CHECK_MPI(MPI_Get_count(&status, mpi_type(type_), &length));
    if (length != segment_length(segment)) {
      throw CommunicationError(
          fmt::format("a reduction on rank {}: expected {} elements from rank {}, found {}; the ranks "
                      "called it with different counts",
                      place_.rank, segment_length(segment), status.MPI_SOURCE, length));
    }
  }
  return true;
}

void MpiReduceExchange::reduce_segment(std::int64_t segment) {
  auto const begin = segment * segment_size_;
  std::vector<void const*> inputs;
  for (int source = 0; source < place_.size; ++source) {
    bool const own = source == place_.rank;
    inputs.push_back(own ? at(all_, offsets_[static_cast<std::size_t>(source)] + begin, type_)
                         : incoming(segment, source));
  }
  reduce_in_rank_order(inputs, at(mine_, begin, type_), segment_length(segment), type_, operation_);
}

void MpiReduceExchange::start_gather() {
  others_.clear();
  next_other_ = 0;
  auto const longest = world().max_count();
  for (int shift = 1; shift < place_.size; ++shift) {
    int const source = (place_.rank + place_.size - shift) % place_.size;
    // The const is that of reduce_scatter's input; with `gather` the buffer is the caller's own to overwrite.
    auto* interval =
        at(mine_, offsets_[static_cast<std::size_t>(source)] - offsets_[static_cast<std::size_t>(place_.rank)], type_);
    for_each_piece(counts_[static_cast<std::size_t>(source)], longest, [&](std::int64_t begin, int length) {
      BALLAST_CHECK_MPI(MPI_Irecv(interval + begin * size_of(type_), length, mpi_type(type_), source, place_.tag,
                                  place_.comm, &others_.emplace_back(MPI_REQUEST_NULL)));
    });
  }
  for (int shift = 1; shift < place_.size; ++shift) {
    int const destination = (place_.rank + shift) % place_.size;
    for_each_piece(counts_[static_cast<std::size_t>(place_.rank)], longest, [&](std::int64_t begin, int length) {
      BALLAST_CHECK_MPI(MPI_Isend(at(mine_, begin, type_), length, mpi_type(type_), destination, place_.tag,
                                  place_.comm, &others_.emplace_back(MPI_REQUEST_NULL)));
    });
  }
}

bool MpiReduceExchange::advance() {
  if (phase_ == Phase::reduce) {
    for (; segment_ < num_segments_; ++segment_) {
      if (!segment_arrived(segment_)) return false;
      reduce_segment(segment_);
      if (segment_ + kSegmentsInFlight < num_segments_) receive_segment(segment_ + kSegmentsInFlight);
    }
    phase_ = Phase::send_rest;
  }
  if (!all_complete(others_, next_other_)) return false;
  if (phase_ == Phase::send_rest && gather_) {
    // Only now: the intervals about to be received were being sent from.
    phase_ = Phase::gather;
    start_gather();
    return all_complete(others_, next_other_);
  }
  return true;
}

}  // namespace ballast::detail
