// SPDX-License-Identifier: Apache-2.0
// A failure on one rank is one clear error on all, wherever they wait. Each test fails a world of its own; the buffers
// of operations that are cut off are static, because MPI may write to them until the process ends.
#include "ballast/comm/checked.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace ballast {
namespace {

using test::error_of;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<float>& kept_buffer(std::size_t count) {
  static std::vector<std::unique_ptr<std::vector<float>>> buffers;
  return *buffers.emplace_back(std::make_unique<std::vector<float>>(count));
}

/// The last rank reports a failure while all others are blocked in `block`; expects that they throw it within a second.
void expect_interrupted(std::function<void(Communicator&)> const& block) {
  auto comm = make_mpi_world();
  bool const fails = comm->rank() == comm->size() - 1;
  auto const expected = "rank " + std::to_string(comm->size() - 1) + ": out of memory on this rank";
  double reported = 0;
  double thrown = 0;

  test::world().barrier();
  if (fails) {
    // Not to wait for something: the others shall have stopped yielding and sleep when the report comes.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reported = seconds();
    comm->report_failure(ErrorKind::device, "out of memory on this rank");
  } else {
    EXPECT_EQ(error_of<DeviceError>([&] { block(*comm); }), expected);
    thrown = seconds();
  }

  double const latency_s = all_reduce_value(test::world(), thrown, ReduceOperation::max) -
                           all_reduce_value(test::world(), reported, ReduceOperation::max);
  EXPECT_LT(latency_s, 1.0);
  if (comm->rank() == 0) testing::Test::RecordProperty("latency_us", static_cast<int>(latency_s * 1e6));
  // From now on everything on this world throws the same, on the reporter, too.
  std::vector<float>& data = kept_buffer(1);
  EXPECT_EQ(error_of<DeviceError>([&] { comm->barrier(); }), expected);
  EXPECT_EQ(error_of<DeviceError>([&] { comm->all_reduce(std::span(data)).wait(); }), expected);
  EXPECT_EQ(error_of<DeviceError>([&] { comm->recv(std::span(data), 0, 0).wait(); }), expected);
  EXPECT_EQ(error_of<DeviceError>([&] { comm->check_failure(); }), expected);
  EXPECT_EQ(error_of<DeviceError>([&] { static_cast<void>(comm->split(0, 0)); }), expected);
}

TEST(Failure, InterruptsARecv) {
  auto& data = kept_buffer(4);
  expect_interrupted([&](Communicator& comm) { comm.recv(std::span(data), comm.size() - 1, 0).wait(); });
}

TEST(Failure, InterruptsASendThatNobodyReceives) {
  auto& data = kept_buffer(1 << 20);
  expect_interrupted([&](Communicator& comm) { comm.send(std::span<float const>(data), comm.size() - 1, 0).wait(); });
}

TEST(Failure, InterruptsASmallAllReduce) {
  auto& data = kept_buffer(4);
  expect_interrupted([&](Communicator& comm) { comm.all_reduce(std::span(data)).wait(); });
}

TEST(Failure, InterruptsALargeAllReduce) {
  auto& data = kept_buffer(1 << 20);
  expect_interrupted([&](Communicator& comm) { comm.all_reduce(std::span(data)).wait(); });
}

TEST(Failure, InterruptsAReduceScatter) {
  auto const size = static_cast<std::size_t>(test::world().size());
  auto& all = kept_buffer(100000 * size);
  auto& mine = kept_buffer(100000);
  std::vector<std::int64_t> const counts(size, 100000);
  expect_interrupted(
      [&](Communicator& comm) { comm.reduce_scatter_v(all.data(), mine.data(), counts, DataType::float32).wait(); });
}

TEST(Failure, InterruptsAnAllGather) {
  auto const size = static_cast<std::size_t>(test::world().size());
  auto& all = kept_buffer(100000 * size);
  auto& mine = kept_buffer(100000);
  expect_interrupted([&](Communicator& comm) { comm.all_gather(std::span<float const>(mine), std::span(all)).wait(); });
}

TEST(Failure, InterruptsABroadcastWhoseRootFails) {
  auto& data = kept_buffer(100000);
  expect_interrupted([&](Communicator& comm) { comm.broadcast(std::span(data), comm.size() - 1).wait(); });
}

TEST(Failure, InterruptsABarrier) {
  expect_interrupted([](Communicator& comm) { comm.barrier(); });
}

TEST(Failure, InterruptsASplit) {
  expect_interrupted([](Communicator& comm) { static_cast<void>(comm.split(0, 0)); });
}

TEST(Failure, InterruptsAgreement) {
  expect_interrupted([](Communicator& comm) { agree(comm, nullptr); });
}

TEST(Failure, InterruptsLocalWorkThatLooks) {
  expect_interrupted([](Communicator& comm) {
    for (double const give_up = seconds() + 10; seconds() < give_up;) comm.check_failure();
  });
}

TEST(Failure, ReachesRanksOutsideThePartThatReports) {
  auto comm = make_mpi_world();
  bool const fails = comm->rank() == 0;
  auto part = comm->split(fails ? 0 : 1, comm->rank());
  static float data = 0;

  test::world().barrier();
  if (fails) {
    part->report_failure(ErrorKind::io, "disk full");
  } else {
    // The peer is alive but will never send.
    EXPECT_EQ(error_of<IoError>([&] { part->recv(std::span(&data, 1), part->rank(), 0).wait(); }), "rank 0: disk full");
  }
  EXPECT_EQ(error_of<IoError>([&] { comm->barrier(); }), "rank 0: disk full");
}

TEST(Failure, IsSeenThroughDecorators) {
  auto comm = make_checked(make_mpi_world());

  test::world().barrier();
  if (comm->rank() == 0) {
    comm->report_failure(ErrorKind::data, "damaged file");
  } else {
    EXPECT_EQ(error_of<DataError>([&] { comm->barrier(); }), "rank 0: damaged file");
  }
}

TEST(Failure, ReportedTwiceCountsOnce) {
  auto comm = make_mpi_world();

  test::world().barrier();
  if (comm->rank() == 0) {
    comm->report_failure(ErrorKind::io, "the first");
    comm->report_failure(ErrorKind::data, "the second");
  }

  EXPECT_EQ(error_of<IoError>([&] { comm->barrier(); }), "rank 0: the first");
}

TEST(Failure, OfAllRanksAtOnceIsOneOfThemEverywhere) {
  auto comm = make_mpi_world();

  test::world().barrier();
  comm->report_failure(ErrorKind::io, "disk full");
  auto const message = error_of<IoError>([&] { comm->barrier(); });

  EXPECT_EQ(message.find("rank "), 0u) << message;
  EXPECT_NE(message.find(": disk full"), message.npos) << message;
}

TEST(Failure, WithAVeryLongMessageArrivesCut) {
  auto comm = make_mpi_world();
  auto const text = "a long story: " + std::string(1 << 20, 'x');

  test::world().barrier();
  if (comm->rank() == 0) {
    comm->report_failure(ErrorKind::failed, text);
  } else {
    auto const message = error_of<Error>([&] { comm->barrier(); });
    EXPECT_EQ(message.find("rank 0: a long story: xxx"), 0u);
    EXPECT_LE(message.size(), 4096u);
    EXPECT_GE(message.size(), 1000u);
  }
}

TEST(Failure, OfOneWorldLeavesAnotherAlone) {
  auto failing = make_mpi_world();
  auto other = make_mpi_world();

  failing->report_failure(ErrorKind::io, "disk full");

  EXPECT_EQ(all_reduce_value(*other, std::int64_t{1}, ReduceOperation::sum), other->size());
  EXPECT_NO_THROW(other->check_failure());
}

}  // namespace
}  // namespace ballast
