// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/nccl.hpp"

#include "ballast/comm/collective.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

namespace ballast {
namespace {

/// "ncclSend" of "ncclSend(data, ...)".
std::string_view function_name(char const* call) { return {call, std::strcspn(call, "(")}; }

void check_cuda(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  auto const message = fmt::format("{} failed: {}", function_name(call), cudaGetErrorString(code));
  if (code == cudaErrorMemoryAllocation) throw DeviceError(message);
  throw CommunicationError(message);
}

/// `comm` may be null; else NCCL adds the detail it remembers.
void check_nccl(ncclResult_t code, char const* call, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw CommunicationError(
      fmt::format("{} failed: {}: {}", function_name(call), ncclGetErrorString(code), ncclGetLastError(comm)));
}

#define BALLAST_CHECK_CUDA(call) check_cuda((call), #call)
#define BALLAST_CHECK_NCCL(call, comm) check_nccl((call), #call, comm)

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return ncclUint8;
    case DataType::int32:
      return ncclInt32;
    case DataType::int64:
      return ncclInt64;
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::float32:
      return ncclFloat32;
    case DataType::float64:
      return ncclFloat64;
  }
  return ncclNumTypes;
}

ncclRedOp_t nccl_operation(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::sum:
      return ncclSum;
    case ReduceOperation::max:
      return ncclMax;
    case ReduceOperation::min:
      return ncclMin;
  }
  return ncclNumOps;
}

/// Polls `is_done` until it is true: yields at first, then sleeps. @throws what another rank reported.
template <class IsDone>
void poll_until(Communicator& bootstrap, IsDone const& is_done) {
  using Clock = std::chrono::steady_clock;
  auto const start = Clock::now();
  while (!is_done()) {
    bootstrap.check_failure();
    if (Clock::now() - start < std::chrono::microseconds(100)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

/// Owns a CUDA event.
class Event {
 public:
  Event() { BALLAST_CHECK_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Owns an NCCL communicator and the stream that its operations run on.
class Channel {
 public:
  /// Collective over `bootstrap`.
  Channel(Communicator& bootstrap, ncclUniqueId const& id) : bootstrap_(&bootstrap) {
    try {
      BALLAST_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;  // so that init can be given up when a peer fails
      BALLAST_CHECK_NCCL(ncclCommInitRankConfig(&comm_, bootstrap.size(), id, bootstrap.rank(), &config), comm_);
      settle();
    } catch (...) {
      abort();
      throw;
    }
  }

  ~Channel() {
    // Destroying waits for what is in flight, which after a failure may never end.
    if (std::uncaught_exceptions() == 0 && !has_failed_) ncclCommDestroy(std::exchange(comm_, nullptr));
    abort();
  }
  Channel(Channel const&) = delete;
  Channel& operator=(Channel const&) = delete;

  /// Starts what `enqueue(comm, stream)` calls, after the work that is in stream 0 now; returns its end as an event.
  template <class Enqueue>
  std::unique_ptr<Event> run(Enqueue const& enqueue) {
    auto end = std::make_unique<Event>();
    fails_on_exception([&] {
      Event inputs_ready;
      BALLAST_CHECK_CUDA(cudaEventRecord(inputs_ready.handle(), nullptr));
      BALLAST_CHECK_CUDA(cudaStreamWaitEvent(stream_, inputs_ready.handle(), 0));
      BALLAST_CHECK_NCCL(ncclGroupStart(), comm_);
      enqueue(comm_, stream_);
      BALLAST_CHECK_NCCL(ncclGroupEnd(), comm_);
      settle();
      BALLAST_CHECK_CUDA(cudaEventRecord(end->handle(), stream_));
    });
    return end;
  }

  /// Blocks the host until `event` has happened.
  void await(Event const& event) {
    fails_on_exception([&] {
      poll_until(*bootstrap_, [&] {
        ncclResult_t state = ncclSuccess;
        BALLAST_CHECK_NCCL(ncclCommGetAsyncError(comm_, &state), comm_);
        check_nccl(state, "an operation", comm_);
        auto const reached = cudaEventQuery(event.handle());
        if (reached == cudaErrorNotReady) return false;
        check_cuda(reached, "an operation");
        return true;
      });
    });
  }

 private:
  /// Waits until NCCL has taken in what was started without blocking.
  void settle() {
    ncclResult_t state = ncclInProgress;
    poll_until(*bootstrap_, [&] {
      BALLAST_CHECK_NCCL(ncclCommGetAsyncError(comm_, &state), comm_);
      return state != ncclInProgress;
    });
    check_nccl(state, "starting an operation", comm_);
  }

  template <class Work>
  void fails_on_exception(Work const& work) {
    try {
      work();
    } catch (...) {
      has_failed_ = true;
      throw;
    }
  }

  /// Lets go of what there is. Local.
  void abort() noexcept {
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    if (stream_ != nullptr) cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

  Communicator* bootstrap_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  bool has_failed_ = false;
};

class NcclRequest final : public RequestState {
 public:
  NcclRequest(Channel& channel, std::unique_ptr<Event> end) : channel_(&channel), end_(std::move(end)) {}
  void wait() override { BALLAST_CHECK_CUDA(cudaStreamWaitEvent(nullptr, end_->handle(), 0)); }
  void synchronize() override { channel_->await(*end_); }

 private:
  Channel* channel_;
  std::unique_ptr<Event> end_;
};

/// Collectives have one channel, messages to higher and to lower ranks one each: NCCL runs the operations of a channel
/// one after the other, and neighbours in a pipeline send to each other at the same time.
struct Channels {
  std::unique_ptr<Channel> collectives;
  std::unique_ptr<Channel> upward;
  std::unique_ptr<Channel> downward;
};

class NcclCommunicator final : public Communicator {
 public:
  /// `owned` is null or what `bootstrap` refers to.
  NcclCommunicator(Communicator& bootstrap, std::unique_ptr<Communicator> owned, int device)
      : owned_(std::move(owned)), bootstrap_(&bootstrap), device_(device) {
    std::array<ncclUniqueId, 3> ids{};
    collectively(bootstrap, [&] {
      use_device();
      if (bootstrap.rank() != 0) return;
      for (auto& id : ids) BALLAST_CHECK_NCCL(ncclGetUniqueId(&id), nullptr);
    });
    bootstrap.broadcast(ids.data(), sizeof(ids), DataType::uint8, 0).synchronize();
    try {
      channels_.collectives = std::make_unique<Channel>(bootstrap, ids[0]);
      channels_.upward = std::make_unique<Channel>(bootstrap, ids[1]);
      channels_.downward = std::make_unique<Channel>(bootstrap, ids[2]);
    } catch (...) {
      // The others are inside NCCL, where no agreement can reach them.
      auto const error = std::current_exception();
      bootstrap.report_failure(kind_of(error), message_of(error));
      throw;
    }
  }

  int rank() const noexcept override { return bootstrap_->rank(); }
  int size() const noexcept override { return bootstrap_->size(); }

  std::unique_ptr<Communicator> split(int color, int key) override { return over(bootstrap_->split(color, key)); }
  std::unique_ptr<Communicator> split_by_node() override { return over(bootstrap_->split_by_node()); }

  void report_failure(ErrorKind kind, std::string const& message) noexcept override {
    bootstrap_->report_failure(kind, message);
  }
  void check_failure() override { bootstrap_->check_failure(); }

 protected:
  Request do_broadcast(void* data, std::int64_t count, DataType type, int root) override {
    return started(*channels_.collectives, [&](ncclComm_t comm, cudaStream_t stream) {
      BALLAST_CHECK_NCCL(
          ncclBroadcast(data, data, static_cast<std::size_t>(count), nccl_type(type), root, comm, stream), comm);
    });
  }

  Request do_all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation) override {
    refuse_bfloat16_sum(type, operation);
    return started(*channels_.collectives, [&](ncclComm_t comm, cudaStream_t stream) {
      BALLAST_CHECK_NCCL(ncclAllReduce(data, data, static_cast<std::size_t>(count), nccl_type(type),
                                       nccl_operation(operation), comm, stream),
                         comm);
    });
  }

  Request do_all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts, DataType type) override {
    return started(*channels_.collectives, [&](ncclComm_t comm, cudaStream_t stream) {
      if (are_equal(counts)) {
        BALLAST_CHECK_NCCL(ncclAllGather(mine, all, static_cast<std::size_t>(counts[0]), nccl_type(type), comm, stream),
                           comm);
        return;
      }
      for_each_interval(counts, type, [&](int root, std::int64_t offset_bytes, std::size_t count) {
        BALLAST_CHECK_NCCL(ncclBroadcast(mine, static_cast<std::byte*>(all) + offset_bytes, count, nccl_type(type),
                                         root, comm, stream),
                           comm);
      });
    });
  }

  Request do_reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                              DataType type) override {
    refuse_bfloat16_sum(type, ReduceOperation::sum);
    return started(*channels_.collectives, [&](ncclComm_t comm, cudaStream_t stream) {
      if (are_equal(counts)) {
        BALLAST_CHECK_NCCL(
            ncclReduceScatter(all, mine, static_cast<std::size_t>(counts[0]), nccl_type(type), ncclSum, comm, stream),
            comm);
        return;
      }
      for_each_interval(counts, type, [&](int root, std::int64_t offset_bytes, std::size_t count) {
        BALLAST_CHECK_NCCL(ncclReduce(static_cast<std::byte const*>(all) + offset_bytes, mine, count, nccl_type(type),
                                      ncclSum, root, comm, stream),
                           comm);
      });
    });
  }

  Request do_send(void const* data, std::int64_t count, DataType type, int destination, int) override {
    return started(
        destination > rank() ? *channels_.upward : *channels_.downward, [&](ncclComm_t comm, cudaStream_t stream) {
          BALLAST_CHECK_NCCL(
              ncclSend(data, static_cast<std::size_t>(count), nccl_type(type), destination, comm, stream), comm);
        });
  }

  Request do_recv(void* data, std::int64_t count, DataType type, int source, int) override {
    return started(source < rank() ? *channels_.upward : *channels_.downward, [&](ncclComm_t comm,
                                                                                  cudaStream_t stream) {
      BALLAST_CHECK_NCCL(ncclRecv(data, static_cast<std::size_t>(count), nccl_type(type), source, comm, stream), comm);
    });
  }

  void do_barrier() override { bootstrap_->barrier(); }

 private:
  void use_device() const { BALLAST_CHECK_CUDA(cudaSetDevice(device_)); }

  std::unique_ptr<Communicator> over(std::unique_ptr<Communicator> part) const {
    if (!part) return nullptr;
    auto& bootstrap = *part;
    return std::make_unique<NcclCommunicator>(bootstrap, std::move(part), device_);
  }

  template <class Enqueue>
  Request started(Channel& channel, Enqueue const& enqueue) {
    bootstrap_->check_failure();
    use_device();  // the calling thread may be another than last time
    return Request(std::make_unique<NcclRequest>(channel, channel.run(enqueue)));
  }

  static bool are_equal(std::span<std::int64_t const> counts) {
    return std::all_of(counts.begin(), counts.end(), [&](auto count) { return count == counts[0]; });
  }

  /// Visits the intervals that are not empty: one NCCL operation each, fused by the group around them.
  template <class Visit>
  static void for_each_interval(std::span<std::int64_t const> counts, DataType type, Visit const& visit) {
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] > 0)
        visit(static_cast<int>(rank), offset * size_of(type), static_cast<std::size_t>(counts[rank]));
      offset += counts[rank];
    }
  }

  static void refuse_bfloat16_sum(DataType type, ReduceOperation operation) {
    if (type == DataType::bfloat16 && operation == ReduceOperation::sum) {
      throw InvalidArgument("NCCL adds bfloat16 in bfloat16, which loses small terms: reduce float32 instead");
    }
  }

  std::unique_ptr<Communicator> owned_;
  Communicator* bootstrap_;
  int device_;
  Channels channels_;
};

}  // namespace

bool nccl_compiled() noexcept { return true; }

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& bootstrap, int device) {
  return std::make_unique<NcclCommunicator>(bootstrap, nullptr, device);
}

}  // namespace ballast
