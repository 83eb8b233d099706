// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/checked.hpp"

#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <functional>
#include <numeric>
#include <vector>

namespace ballast {
namespace {

using test::error_of;

class CheckedTest : public testing::Test {
 protected:
  /// The error when rank 0 runs `first` and all others `second`; asserts that every rank got the same one.
  std::string error_when(std::function<void()> const& first, std::function<void()> const& second) {
    auto const message = error_of<CommunicationError>(comm_->rank() == 0 ? first : second);
    auto const messages = all_gather_text(test::world(), message);
    for (auto const& other : messages) EXPECT_EQ(other, message);
    return message;
  }

  std::string expected(std::string const& first, std::string const& second) const {
    std::string others = "rank 1";
    if (comm_->size() > 2) {
      others = "ranks 1";
      for (int rank = 2; rank < comm_->size(); ++rank) others += ", " + std::to_string(rank);
    }
    return "the ranks called different collectives: rank 0: " + first + "; " + others + ": " + second;
  }

  /// The same with the parts in the other order: parts are sorted by what was called.
  std::string expected_swapped(std::string const& first, std::string const& second) const {
    auto const plain = expected(first, second);
    auto const head = plain.find("rank 0");
    auto const middle = plain.find("; ");
    return plain.substr(0, head) + plain.substr(middle + 2) + "; " + plain.substr(head, middle - head);
  }

  void reduce(std::int64_t count, DataType type = DataType::float32, ReduceOperation operation = ReduceOperation::sum) {
    comm_->all_reduce(buffer_.data(), count, type, operation).wait();
  }

  std::unique_ptr<Communicator> comm_ = make_checked(make_mpi_world());
  std::vector<double> buffer_ = std::vector<double>(1000);
};

TEST_F(CheckedTest, CatchesDifferentCounts) {
  EXPECT_EQ(
      error_when([&] { reduce(4); }, [&] { reduce(5); }),
      expected("all_reduce (sum) of 4 float32, its collective 0", "all_reduce (sum) of 5 float32, its collective 0"));
}

TEST_F(CheckedTest, CatchesDifferentTypes) {
  EXPECT_EQ(
      error_when([&] { reduce(4, DataType::int32); }, [&] { reduce(4); }),
      expected("all_reduce (sum) of 4 int32, its collective 0", "all_reduce (sum) of 4 float32, its collective 0"));
}

TEST_F(CheckedTest, CatchesDifferentReductions) {
  EXPECT_EQ(error_when([&] { reduce(4, DataType::int32, ReduceOperation::max); }, [&] { reduce(4, DataType::int32); }),
            expected_swapped("all_reduce (max) of 4 int32, its collective 0",
                             "all_reduce (sum) of 4 int32, its collective 0"));
}

TEST_F(CheckedTest, CatchesDifferentRoots) {
  EXPECT_EQ(error_when([&] { comm_->broadcast(std::span(buffer_), 0).wait(); },
                       [&] { comm_->broadcast(std::span(buffer_), 1).wait(); }),
            expected("broadcast of 1000 float64 from root 0, its collective 0",
                     "broadcast of 1000 float64 from root 1, its collective 0"));
}

TEST_F(CheckedTest, CatchesDifferentOperations) {
  EXPECT_EQ(error_when([&] { comm_->barrier(); }, [&] { reduce(4); }),
            expected_swapped("barrier, its collective 0", "all_reduce (sum) of 4 float32, its collective 0"));
  EXPECT_EQ(error_when([&] { comm_->barrier(); }, [&] { static_cast<void>(comm_->split(0, 0)); }),
            expected("barrier, its collective 1", "split, its collective 1"));
  EXPECT_EQ(
      error_when([&] { static_cast<void>(comm_->split(0, 0)); }, [&] { static_cast<void>(comm_->split_by_node()); }),
      expected("split, its collective 2", "split_by_node, its collective 2"));
}

TEST_F(CheckedTest, CatchesCountsThatDifferOnlyInTheirPlace) {
  auto const size = static_cast<std::size_t>(comm_->size());
  std::vector<std::int64_t> first(size, 1);
  std::vector<std::int64_t> second(size, 1);
  first[0] = 2;
  second[1] = 2;
  std::vector<double> mine(2);

  for (bool gather : {true, false}) {
    auto const call = [&](std::vector<std::int64_t> const& counts) {
      if (gather) {
        comm_->all_gather_v(mine.data(), buffer_.data(), counts, DataType::float64).wait();
      } else {
        comm_->reduce_scatter_v(buffer_.data(), mine.data(), counts, DataType::float64).wait();
      }
    };
    auto const message = error_when([&] { call(first); }, [&] { call(second); });
    EXPECT_NE(message.find("the ranks called different collectives"), message.npos) << message;
    EXPECT_NE(message.find("[counts "), message.npos) << message;
  }
}

TEST_F(CheckedTest, WorksOnAfterAMismatchBecauseNothingWasStarted) {
  error_when([&] { reduce(4); }, [&] { reduce(5); });

  EXPECT_EQ(all_reduce_value(*comm_, std::int64_t{2}, ReduceOperation::sum), 2 * comm_->size());
}

TEST_F(CheckedTest, ChecksPartsToo) {
  auto part = comm_->split(0, 0);

  EXPECT_EQ(
      error_when([&] { part->all_reduce(std::span(buffer_).first(3)).wait(); },
                 [&] { part->all_reduce(std::span(buffer_).first(4)).wait(); }),
      expected("all_reduce (sum) of 3 float64, its collective 0", "all_reduce (sum) of 4 float64, its collective 0"));
}

TEST_F(CheckedTest, ForwardsMessagesUnchecked) {
  std::int32_t const mine = comm_->rank();
  std::int32_t received = -1;
  if (comm_->rank() == 0) {
    comm_->send(std::span(&mine, 1), 1, 0).wait();
  } else if (comm_->rank() == 1) {
    comm_->recv(std::span(&received, 1), 0, 0).wait();
    EXPECT_EQ(received, 0);
  }

  EXPECT_NO_THROW(comm_->barrier());
}

}  // namespace
}  // namespace ballast
