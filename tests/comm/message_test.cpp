// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages of the MPI back end.
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ballast {
namespace {

using test::error_of;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 30;

TEST(Messages, OfAnySizeGoAroundARing) {
  for (std::int64_t max_count : {kNoLimit, std::int64_t{7}}) {
    auto comm = make_mpi_world(max_count);
    int const next = (comm->rank() + 1) % comm->size();
    int const previous = (comm->rank() + comm->size() - 1) % comm->size();
    for (std::size_t count : {0u, 1u, 6u, 7u, 8u, 14u, 15u, 50000u}) {
      std::vector<std::int32_t> mine(count);
      std::iota(mine.begin(), mine.end(), comm->rank());
      std::vector<std::int32_t> received(count, -1);

      auto sent = comm->send(std::span<std::int32_t const>(mine), next, 3);
      comm->recv(std::span(received), previous, 3).wait();
      sent.wait();

      std::vector<std::int32_t> expected(count);
      std::iota(expected.begin(), expected.end(), previous);
      EXPECT_EQ(received, expected) << count << " elements, split at " << max_count;
    }
  }
}

TEST(Messages, OfOneTagArriveInTheOrderTheyWereSent) {
  auto& comm = test::world();
  int const next = (comm.rank() + 1) % comm.size();
  int const previous = (comm.rank() + comm.size() - 1) % comm.size();
  constexpr int num_messages = 20;
  std::vector<std::int64_t> mine(num_messages);
  std::iota(mine.begin(), mine.end(), 0);
  std::vector<std::int64_t> received(num_messages, -1);
  std::vector<Request> sends;
  std::vector<Request> receives;
  for (std::size_t message = 0; message < num_messages; ++message) {
    receives.push_back(comm.recv(std::span(&received[message], 1), previous, 5));
    sends.push_back(comm.send(std::span<std::int64_t const>(&mine[message], 1), next, 5));
  }

  for (std::size_t message = num_messages; message-- > 0;) receives[message].wait();
  for (auto& send : sends) send.wait();

  EXPECT_EQ(received, mine);
}

TEST(Messages, AreToldApartByTag) {
  auto& comm = test::world();
  int const next = (comm.rank() + 1) % comm.size();
  int const previous = (comm.rank() + comm.size() - 1) % comm.size();
  std::int32_t const low = 1;
  std::int32_t const high = 2;
  std::int32_t received_low = 0;
  std::int32_t received_high = 0;

  auto first = comm.send(std::span(&low, 1), next, 0);
  auto second = comm.send(std::span(&high, 1), next, 32767);
  comm.recv(std::span(&received_high, 1), previous, 32767).wait();
  comm.recv(std::span(&received_low, 1), previous, 0).wait();
  first.wait();
  second.wait();

  EXPECT_EQ(received_low, 1);
  EXPECT_EQ(received_high, 2);
}

TEST(Messages, MayGoToTheSenderItself) {
  auto& comm = test::world();
  double const mine = comm.rank() + 0.5;
  double received = 0;

  auto sent = comm.send(std::span(&mine, 1), comm.rank(), 1);
  comm.recv(std::span(&received, 1), comm.rank(), 1).wait();
  sent.wait();

  EXPECT_EQ(received, mine);
}

/// The error on rank 1 when it expects `expected` elements and rank 0 sends `sent`.
std::string error_for(std::int64_t sent, std::int64_t expected, std::int64_t max_count) {
  static std::vector<std::vector<float>> buffers;  // outlive the messages that nobody receives
  auto comm = make_mpi_world(max_count);
  auto& buffer = buffers.emplace_back(static_cast<std::size_t>(std::max(sent, expected)));
  std::string message = "not rank 1";
  if (comm->rank() == 0) {
    comm->send(buffer.data(), sent, DataType::float32, 1, 4).wait();
  } else if (comm->rank() == 1) {
    message =
        error_of<CommunicationError>([&] { comm->recv(buffer.data(), expected, DataType::float32, 0, 4).wait(); });
  }
  return message;
}

TEST(Messages, OfAnotherLengthAreAnError) {
  if (test::world().size() < 2) GTEST_SKIP() << "needs two ranks";
  bool const receives = test::world().rank() == 1;
  auto const expect = [&](std::string const& found, std::string const& message) {
    if (receives) {
      EXPECT_EQ(found, "recv from rank 0 with tag 4: expected " + message);
    }
  };

  expect(error_for(5, 8, kNoLimit), "8 elements of float32, found 5 elements");
  expect(error_for(0, 8, kNoLimit), "8 elements of float32, found 0 elements");
  expect(error_for(8, 5, kNoLimit), "5 elements of float32, found a longer message");
  expect(error_for(8, 0, kNoLimit), "0 elements of float32, found a longer message");
}

TEST(Messages, OfAnotherLengthAreAnErrorAlsoWhenTheyAreSplit) {
  if (test::world().size() < 2) GTEST_SKIP() << "needs two ranks";
  bool const receives = test::world().rank() == 1;
  auto const expect = [&](std::string const& found, std::string const& message) {
    if (receives) {
      EXPECT_EQ(found, "recv from rank 0 with tag 4: expected " + message);
    }
  };

  // Multiples of the limit: without a closing message the first would wait for ever, the second pass.
  expect(error_for(7, 14, 7), "14 elements of float32, found 7 elements");
  expect(error_for(21, 14, 7), "14 elements of float32, found a longer message");
  expect(error_for(9, 14, 7), "14 elements of float32, found 9 elements");
}

TEST(Messages, MayBeLeftWaitingOnceAnotherErrorUnwinds) {
  auto comm = make_mpi_world();
  static float never_written = 0;

  EXPECT_THROW(
      {
        auto receive = comm->recv(std::span(&never_written, 1), comm->rank(), 2);
        throw IoError("something else failed");
      },
      IoError);
}

}  // namespace
}  // namespace ballast
