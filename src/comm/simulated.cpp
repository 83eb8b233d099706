// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/simulated.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <time.h>

namespace ballast {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// Nanoseconds of the clock that all processes of one machine share; all simulated ranks run on one machine.
std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

/// Sleeps until `time_ns`. @throws what another rank reported; looks every 50 ms.
void sleep_until(std::int64_t time_ns, Communicator& comm) {
  // Linux lets a thread oversleep by 50 us to save power, as much as a simulated message takes.
  thread_local bool const is_precise = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
  static_cast<void>(is_precise);
  constexpr std::int64_t longest_sleep = kSecond / 20;
  for (auto now = now_ns(); now < time_ns; now = now_ns()) {
    auto const wake = std::min(time_ns, now + longest_sleep);
    timespec const until{wake / kSecond, wake % kSecond};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    if (wake < time_ns) comm.check_failure();
  }
}

enum class Level { within_node, between_nodes };

/// When this rank's links are free again, per level. Shared by all communicators that were split from one, because they
/// use the same links.
struct Links {
  std::int64_t free_ns[2] = {0, 0};
  std::int64_t& free(Level level) { return free_ns[static_cast<int>(level)]; }
};

class SimulatedSend final : public RequestState {
 public:
  SimulatedSend(Communicator& inner, std::int64_t arrival_ns, void const* data, std::int64_t count, DataType type,
                int destination, int tag)
      : arrival_ns_(arrival_ns),
        stamp_(inner.send(&arrival_ns_, 1, DataType::int64, destination, tag)),
        payload_(inner.send(data, count, type, destination, tag)) {}
  void wait() override {
    stamp_.synchronize();
    payload_.synchronize();
  }

 private:
  std::int64_t arrival_ns_;
  Request stamp_;
  Request payload_;
};

/// Both receives are posted at once: so stamps and payloads keep their order when several requests are under way.
class SimulatedReceive final : public RequestState {
 public:
  SimulatedReceive(Communicator& inner, void* data, std::int64_t count, DataType type, int source, int tag)
      : inner_(&inner),
        stamp_(inner.recv(&arrival_ns_, 1, DataType::int64, source, tag)),
        payload_(inner.recv(data, count, type, source, tag)) {}
  void wait() override {
    stamp_.synchronize();
    payload_.synchronize();
    sleep_until(arrival_ns_, *inner_);
  }

 private:
  Communicator* inner_;
  std::int64_t arrival_ns_ = 0;
  Request stamp_;
  Request payload_;
};

/// A collective begins when its last rank starts it and the links of all ranks are free: the ranks agree on that moment
/// by a small all-reduce beside the collective, and all end `duration` later.
class SimulatedCollective final : public RequestState {
 public:
  SimulatedCollective(Communicator& inner, Request operation, std::shared_ptr<Links> links, Level level,
                      std::int64_t duration_ns)
      : inner_(&inner),
        links_(std::move(links)),
        level_(level),
        duration_ns_(duration_ns),
        begin_ns_(std::max(now_ns(), links_->free(level))),
        operation_(std::move(operation)) {
    // What is started before this one was waited for queues behind it.
    links_->free(level_) = begin_ns_ + duration_ns_;
    latest_ = inner.all_reduce(&begin_ns_, 1, DataType::int64, ReduceOperation::max);
  }
  void wait() override {
    operation_.synchronize();
    latest_.synchronize();
    auto const end_ns = begin_ns_ + duration_ns_;
    links_->free(level_) = std::max(links_->free(level_), end_ns);
    sleep_until(end_ns, *inner_);
  }

 private:
  Communicator* inner_;
  std::shared_ptr<Links> links_;
  Level level_;
  std::int64_t duration_ns_;
  std::int64_t begin_ns_;
  Request operation_;
  Request latest_;
};

class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(std::unique_ptr<Communicator> inner, LinkDelays delays, std::shared_ptr<Links> links)
      : inner_(std::move(inner)), delays_(std::move(delays)), links_(std::move(links)) {
    auto const& nodes = delays_.node_of_rank;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      auto const same = std::count(nodes.begin(), nodes.end(), nodes[rank]);
      has_within_ = has_within_ || same > 1;
      has_between_ = has_between_ || same < std::ssize(nodes);
    }
    if (has_within_) check(delays_.within_node, "within a node");
    if (has_between_) check(delays_.between_nodes, "between nodes");
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = inner_->split(color, key);
    if (!part) return nullptr;
    auto delays = delays_;
    std::int32_t const own_node = delays_.node_of_rank[static_cast<std::size_t>(rank())];
    delays.node_of_rank.assign(static_cast<std::size_t>(part->size()), 0);
    part->all_gather(std::span<std::int32_t const>(&own_node, 1), std::span<std::int32_t>(delays.node_of_rank))
        .synchronize();
    return std::make_unique<SimulatedCommunicator>(std::move(part), std::move(delays), links_);
  }

  std::unique_ptr<Communicator> split_by_node() override {
    return split(delays_.node_of_rank[static_cast<std::size_t>(rank())], rank());
  }

  void report_failure(ErrorKind kind, std::string const& message) noexcept override {
    inner_->report_failure(kind, message);
  }
  void check_failure() override { inner_->check_failure(); }

 protected:
  Request do_broadcast(void* data, std::int64_t count, DataType type, int root) override {
    return collective(inner_->broadcast(data, count, type, root), log2_steps(), 1, count * size_of(type));
  }
  Request do_all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation) override {
    return collective(inner_->all_reduce(data, count, type, operation), 2 * (size() - 1), size(),
                      count * size_of(type));
  }
  Request do_all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts, DataType type) override {
    return collective(inner_->all_gather_v(mine, all, counts, type), size() - 1, size(), bytes_of(counts, type));
  }
  Request do_reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                              DataType type) override {
    return collective(inner_->reduce_scatter_v(all, mine, counts, type), size() - 1, size(), bytes_of(counts, type));
  }

  Request do_send(void const* data, std::int64_t count, DataType type, int destination, int tag) override {
    auto const arrival_ns = destination == rank() ? now_ns() : arrival_of(destination, count * size_of(type));
    return Request(std::make_unique<SimulatedSend>(*inner_, arrival_ns, data, count, type, destination, tag));
  }
  Request do_recv(void* data, std::int64_t count, DataType type, int source, int tag) override {
    return Request(std::make_unique<SimulatedReceive>(*inner_, data, count, type, source, tag));
  }

  void do_barrier() override {
    inner_->barrier();
    if (size() > 1) delayed(Request(), seconds_of(log2_steps(), 1, 0)).synchronize();
  }

 private:
  static void check(LinkSpeed const& link, char const* where) {
    bool const latency_is_valid = std::isfinite(link.latency_s) && link.latency_s >= 0;
    if (!latency_is_valid || !(link.bytes_per_s > 0)) {
      throw InvalidArgument(
          fmt::format("the link {}: expected a latency >= 0 s and a bandwidth > 0 B/s, found {} s and {} B/s", where,
                      link.latency_s, link.bytes_per_s));
    }
  }

  static std::int64_t bytes_of(std::span<std::int64_t const> counts, DataType type) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) * size_of(type);
  }

  /// ceil(log2 p): the rounds of a tree.
  int log2_steps() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(size() - 1))); }

  std::int64_t dilated_ns(double seconds) const {
    return static_cast<std::int64_t>(std::ceil(seconds * delays_.dilation * static_cast<double>(kSecond)));
  }

  double seconds_of(int steps, int parts, std::int64_t bytes) const {
    double const within = has_within_ ? ring_seconds(delays_.within_node, parts, steps, bytes) : 0.0;
    double const between = has_between_ ? ring_seconds(delays_.between_nodes, parts, steps, bytes) : 0.0;
    return std::max(within, between);
  }

  Request collective(Request operation, int steps, int parts, std::int64_t bytes) {
    if (size() == 1 || bytes == 0) return operation;
    return delayed(std::move(operation), seconds_of(steps, parts, bytes));
  }

  Request delayed(Request operation, double seconds) {
    auto const level = has_between_ ? Level::between_nodes : Level::within_node;
    return Request(
        std::make_unique<SimulatedCollective>(*inner_, std::move(operation), links_, level, dilated_ns(seconds)));
  }

  /// Books this rank's link for a message that starts now and returns when it arrives.
  std::int64_t arrival_of(int destination, std::int64_t bytes) {
    auto const& nodes = delays_.node_of_rank;
    bool const is_near = nodes[static_cast<std::size_t>(rank())] == nodes[static_cast<std::size_t>(destination)];
    auto const& link = is_near ? delays_.within_node : delays_.between_nodes;
    auto& free_ns = links_->free(is_near ? Level::within_node : Level::between_nodes);
    auto const begin_ns = std::max(now_ns(), free_ns);
    double const transfer_s = static_cast<double>(bytes) / link.bytes_per_s;
    // The link is busy while bytes go into it; the latency of one message overlaps with the next.
    free_ns = begin_ns + dilated_ns(transfer_s);
    return begin_ns + dilated_ns(link.latency_s + transfer_s);
  }

  std::unique_ptr<Communicator> inner_;
  LinkDelays delays_;
  std::shared_ptr<Links> links_;
  bool has_within_ = false;
  bool has_between_ = false;
};

}  // namespace

double ring_seconds(LinkSpeed const& link, int ranks, int steps, std::int64_t bytes) {
  return steps * (link.latency_s + static_cast<double>(bytes) / ranks / link.bytes_per_s);
}

std::unique_ptr<Communicator> make_simulated(std::unique_ptr<Communicator> inner, LinkDelays delays) {
  if (std::ssize(delays.node_of_rank) != inner->size()) {
    throw InvalidArgument(fmt::format("simulated links: expected a node for each of {} ranks, found {}", inner->size(),
                                      delays.node_of_rank.size()));
  }
  if (!(std::isfinite(delays.dilation) && delays.dilation > 0)) {
    throw InvalidArgument(fmt::format("simulated links: expected a dilation > 0, found {}", delays.dilation));
  }
  auto const& nodes = delays.node_of_rank;
  if (std::any_of(nodes.begin(), nodes.end(), [](int node) { return node < 0; })) {
    throw InvalidArgument("simulated links: expected nodes >= 0");
  }
  return std::make_unique<SimulatedCommunicator>(std::move(inner), std::move(delays), std::make_shared<Links>());
}

}  // namespace ballast
