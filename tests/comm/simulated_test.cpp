// SPDX-License-Identifier: Apache-2.0
// Times of simulated links: the lower bound is exact, the upper generous, because the machine may be busy.
#include "ballast/comm/simulated.hpp"

#include "ballast/comm/checked.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <chrono>
#include <thread>
#include <vector>

namespace ballast {
namespace {

using test::error_of;

constexpr double kBusyMachine = 1.0;  ///< seconds that anything may take longer

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Ranks 0, 1 on node 0, ranks 2, 3 on node 1. Within a node 20 ms + 1 MB/s, between nodes 50 ms + 0.5 MB/s.
LinkDelays two_per_node(int size, double dilation = 1.0) {
  LinkDelays delays{{}, {0.020, 1e6}, {0.050, 0.5e6}, dilation};
  for (int rank = 0; rank < size; ++rank) delays.node_of_rank.push_back(rank / 2);
  return delays;
}

std::unique_ptr<Communicator> make(LinkDelays delays) { return make_simulated(make_mpi_world(), std::move(delays)); }
std::unique_ptr<Communicator> make(double dilation = 1.0) { return make(two_per_node(test::world().size(), dilation)); }

/// Seconds on all ranks from a common start until `work` ends there.
template <class Work>
double elapsed(Work const& work) {
  double const start = all_reduce_value(test::world(), seconds(), ReduceOperation::max);
  work();
  return seconds() - start;
}

void expect_between(double found_s, double least_s) {
  EXPECT_GE(found_s, least_s);
  EXPECT_LE(found_s, least_s + kBusyMachine);
}

TEST(SimulatedMessage, TakesLatencyPlusBytesOverBandwidthTimesDilation) {
  auto comm = make(2.0);
  std::vector<std::uint8_t> data(10000, static_cast<std::uint8_t>(comm->rank()));

  double const duration = elapsed([&] {
    if (comm->rank() == 0) comm->send(std::span<std::uint8_t const>(data), 1, 0).wait();
    if (comm->rank() == 1) comm->recv(std::span(data), 0, 0).wait();
  });

  if (comm->rank() == 1) {
    expect_between(duration, 2.0 * (0.020 + 0.010));
    EXPECT_EQ(data.back(), 0);
  }
}

TEST(SimulatedMessage, DoesNotDelayItsSender) {
  auto delays = two_per_node(test::world().size());
  delays.within_node.latency_s = 2.0;
  auto comm = make(delays);
  std::int32_t value = 7;

  if (comm->rank() == 0) {
    double const start = seconds();
    comm->send(std::span<std::int32_t const>(&value, 1), 1, 0).wait();
    EXPECT_LT(seconds() - start, 1.0);
  } else if (comm->rank() == 1) {
    comm->recv(std::span(&value, 1), 0, 0).wait();
  }
}

TEST(SimulatedMessage, WaitsForItsPredecessorsOnTheSameLink) {
  auto comm = make();
  std::vector<std::uint8_t> sent(30000);
  std::vector<std::vector<std::uint8_t>> received(3, std::vector<std::uint8_t>(30000));
  std::vector<double> arrived(3);
  std::vector<Request> requests;

  elapsed([&] {
    double const start = seconds();
    for (std::size_t message = 0; message < 3; ++message) {
      if (comm->rank() == 0) requests.push_back(comm->send(std::span<std::uint8_t const>(sent), 1, 0));
      if (comm->rank() == 1) requests.push_back(comm->recv(std::span(received[message]), 0, 0));
    }
    for (std::size_t message = 0; message < requests.size(); ++message) {
      requests[message].wait();
      arrived[message] = seconds() - start;
    }
  });

  if (comm->rank() == 1) {
    // 30 ms each on the link, one after the other; the latency comes once on top. The sender may have started earlier
    // than this rank by a hair, hence differences.
    EXPECT_GE(arrived[2] - arrived[0], 0.050);
    EXPECT_LE(arrived[2], 0.020 + 3 * 0.030 + kBusyMachine);
  }
}

TEST(SimulatedMessage, ArrivesInOrderAlsoWhenWaitedForInReverse) {
  auto comm = make();
  std::int64_t const sent[] = {1, 2, 3, 4};
  std::int64_t received[] = {0, 0, 0, 0};
  std::vector<Request> requests;
  for (std::size_t message = 0; message < 4; ++message) {
    if (comm->rank() == 0) requests.push_back(comm->send(std::span(&sent[message], 1), 1, 6));
    if (comm->rank() == 1) requests.push_back(comm->recv(std::span(&received[message], 1), 0, 6));
  }

  while (!requests.empty()) {
    requests.back().wait();
    requests.pop_back();
  }

  if (comm->rank() == 1) {
    for (std::size_t message = 0; message < 4; ++message) EXPECT_EQ(received[message], sent[message]);
  }
}

TEST(SimulatedMessage, TakesTheLinkOfItsLevel) {
  auto comm = make();
  if (comm->size() < 3) GTEST_SKIP() << "needs two nodes";
  std::int32_t value = 0;

  double const duration = elapsed([&] {
    if (comm->rank() == 0) comm->send(std::span<std::int32_t const>(&value, 1), 2, 0).wait();
    if (comm->rank() == 2) comm->recv(std::span(&value, 1), 0, 0).wait();
  });

  if (comm->rank() == 2) expect_between(duration, 0.050);
}

TEST(SimulatedMessage, SentInTheFarFutureIsInterruptedByAFailure) {
  auto delays = two_per_node(test::world().size());
  delays.within_node.latency_s = 1000;
  auto comm = make(delays);
  static std::int32_t value = 0;

  double const start = seconds();
  if (comm->rank() == 0) {
    comm->send(std::span<std::int32_t const>(&value, 1), 1, 0).wait();
    comm->report_failure(ErrorKind::device, "out of memory");
  } else if (comm->rank() == 1) {
    EXPECT_EQ(error_of<DeviceError>([&] { comm->recv(std::span(&value, 1), 0, 0).wait(); }), "rank 0: out of memory");
  }
  EXPECT_LT(seconds() - start, 10.0);
}

TEST(SimulatedCollective, LastsAsLongAsTheRing) {
  auto comm = make();
  int const p = comm->size();
  auto const link = p > 2 ? LinkSpeed{0.050, 0.5e6} : LinkSpeed{0.020, 1e6};
  std::int64_t const share = 4000;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(share * p));
  std::vector<std::uint8_t> mine(static_cast<std::size_t>(share));
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(p), share);
  std::int64_t const bytes = share * p;

  expect_between(elapsed([&] { comm->all_gather(std::span<std::uint8_t const>(mine), std::span(all)).wait(); }),
                 ring_seconds(link, p, p - 1, bytes));
  expect_between(elapsed([&] { comm->reduce_scatter_v(all.data(), mine.data(), counts, DataType::uint8).wait(); }),
                 ring_seconds(link, p, p - 1, bytes));
  expect_between(elapsed([&] { comm->all_reduce(std::span(all)).wait(); }), ring_seconds(link, p, 2 * (p - 1), bytes));
  expect_between(elapsed([&] { comm->broadcast(std::span(all), 0).wait(); }),
                 ring_seconds(link, 1, p > 2 ? 2 : 1, bytes));
  expect_between(elapsed([&] { comm->barrier(); }), (p > 2 ? 2 : 1) * link.latency_s);
}

TEST(SimulatedCollective, CountsWorkBetweenStartAndWait) {
  auto delays = two_per_node(test::world().size());
  delays.within_node.latency_s = delays.between_nodes.latency_s = 0.25;
  auto comm = make(delays);
  std::vector<float> data(1);

  double const duration = elapsed([&] {
    auto request = comm->all_reduce(std::span(data));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // stands for work
    request.wait();
  });

  double const ring_s = 2 * (comm->size() - 1) * 0.25;
  EXPECT_GE(duration, ring_s);
  EXPECT_LT(duration, ring_s + 0.5);
}

TEST(SimulatedCollective, QueuesBehindAnotherOnTheSameLinks) {
  auto comm = make();
  int const p = comm->size();
  double const latency_s = p > 2 ? 0.050 : 0.020;
  std::vector<float> first(1);
  std::vector<float> second(1);

  double const duration = elapsed([&] {
    auto first_request = comm->all_reduce(std::span(first));
    auto second_request = comm->all_reduce(std::span(second));
    second_request.wait();
    first_request.wait();
  });

  expect_between(duration, 2 * 2 * (p - 1) * latency_s);
}

TEST(SimulatedCollective, OfRanksOfOneNodeTakesItsLinksOnly) {
  auto comm = make();
  auto node = comm->split_by_node();
  std::vector<std::int32_t> data(1);
  EXPECT_EQ(node->size(), comm->rank() / 2 * 2 + 1 < comm->size() ? 2 : 1);

  double const duration = elapsed([&] { node->all_reduce(std::span(data)).wait(); });

  if (node->size() == 2) expect_between(duration, 2 * 0.020);
}

TEST(SimulatedCollective, DelaysDecoratedAndDecoratingCommunicators) {
  auto outside = make_checked(make());
  auto inside = make_simulated(make_checked(make_mpi_world()), two_per_node(test::world().size()));
  for (auto* comm : {outside.get(), inside.get()}) {
    double const latency_s = comm->size() > 2 ? 0.050 : 0.020;
    std::int64_t sum = 0;

    double const duration =
        elapsed([&] { sum = all_reduce_value(*comm, std::int64_t{comm->rank()}, ReduceOperation::sum); });

    EXPECT_EQ(sum, comm->size() * (comm->size() - 1) / 2);
    expect_between(duration, 2 * (comm->size() - 1) * latency_s);
  }
}

TEST(Simulated, RefusesDelaysThatMakeNoSense) {
  int const size = test::world().size();
  auto const message = [](LinkDelays const& delays) { return error_of<InvalidArgument>([&] { make(delays); }); };
  auto delays = two_per_node(size);
  delays.node_of_rank.pop_back();
  EXPECT_EQ(message(delays), "simulated links: expected a node for each of " + std::to_string(size) + " ranks, found " +
                                 std::to_string(size - 1));
  delays = two_per_node(size);
  delays.dilation = 0;
  EXPECT_EQ(message(delays), "simulated links: expected a dilation > 0, found 0");
  delays = two_per_node(size);
  delays.within_node.bytes_per_s = 0;
  EXPECT_EQ(message(delays),
            "the link within a node: expected a latency >= 0 s and a bandwidth > 0 B/s, found 0.02 s and 0 B/s");
  delays = two_per_node(size);
  delays.node_of_rank.back() = -1;
  EXPECT_EQ(message(delays), "simulated links: expected nodes >= 0");
}

}  // namespace
}  // namespace ballast
