// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/collective.hpp"

#include "support/mpi_test.hpp"

#include <algorithm>

namespace ballast {
namespace {

using test::error_of;

std::string rank_list(int size) {
  std::string list;
  for (int rank = 0; rank < size; ++rank) list += (rank > 0 ? ", " : "") + std::to_string(rank);
  return list;
}

TEST(Agree, LetsAllRanksPassWhenNoneFailed) {
  EXPECT_NO_THROW(agree(test::world(), nullptr));
  EXPECT_NO_THROW(collectively(test::world(), [] {}));
}

TEST(Agree, ThrowsTheErrorOfTheOneFailingRankOnAll) {
  auto& comm = test::world();
  int const failing = comm.size() - 1;

  auto const message = error_of<DeviceError>([&] {
    collectively(comm, [&] {
      if (comm.rank() == failing) throw DeviceError("out of memory: asked 64 MiB");
    });
  });

  auto const named = comm.size() > 1 ? " (rank " + std::to_string(failing) + ")" : std::string();
  EXPECT_EQ(message, "out of memory: asked 64 MiB" + named);
}

TEST(Agree, ThrowsTheErrorOfTheLowestRankAndNamesTheOthers) {
  auto& comm = test::world();
  if (comm.size() < 3) GTEST_SKIP() << "needs three ranks";

  auto const message = error_of<IoError>([&] {
    collectively(comm, [&] {
      if (comm.rank() == 1) throw IoError("disk full");
      if (comm.rank() == 2) throw DataError("damaged file");
    });
  });

  EXPECT_EQ(message, "disk full (rank 1; failed with different errors: ranks 1, 2)");
}

TEST(Agree, NamesEveryRankWhenAllFailDifferently) {
  auto& comm = test::world();
  if (comm.size() < 2) GTEST_SKIP() << "needs two ranks";

  auto const message = error_of<InvalidArgument>(
      [&] { collectively(comm, [&] { throw InvalidArgument("rank-dependent " + std::to_string(comm.rank())); }); });

  EXPECT_EQ(message, "rank-dependent 0 (rank 0; failed with different errors: ranks " + rank_list(comm.size()) + ")");
}

TEST(Agree, KeepsTheErrorItselfWhenAllRanksFailAlike) {
  auto& comm = test::world();

  try {
    collectively(comm, [] { throw InfeasiblePlan("nothing fits", 212); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (InfeasiblePlan const& error) {
    EXPECT_STREQ(error.what(), "nothing fits");
    EXPECT_EQ(error.missing_bytes(), 212);
  }
}

TEST(Agree, TurnsForeignExceptionsIntoErrors) {
  auto& comm = test::world();

  EXPECT_EQ(error_of<Error>([&] { collectively(comm, [] { throw std::out_of_range("index 7"); }); }), "index 7");
  EXPECT_EQ(error_of<Error>([&] { collectively(comm, [] { throw 42; }); }), "an exception of unknown type");
}

TEST(Agree, CutsVeryLongMessages) {
  auto& comm = test::world();
  if (comm.size() < 2) GTEST_SKIP() << "needs two ranks";

  auto const message = error_of<IoError>([&] {
    collectively(comm, [&] {
      if (comm.rank() == 0) throw IoError(std::string(1 << 20, 'x'));
    });
  });

  EXPECT_EQ(message, std::string(16 * 1024, 'x') + " (rank 0)");
}

TEST(Agree, LeavesTheCommunicatorUsable) {
  auto& comm = test::world();
  EXPECT_THROW(collectively(comm, [] { throw IoError("x"); }), IoError);

  EXPECT_EQ(all_reduce_value(comm, std::int64_t{1}, ReduceOperation::sum), comm.size());
}

TEST(Texts, AreBroadcastWhateverTheirLength) {
  auto& comm = test::world();
  for (int root = 0; root < comm.size(); ++root) {
    for (std::size_t length : {0u, 1u, 100000u}) {
      std::string const text = std::string(length, static_cast<char>('a' + root));

      EXPECT_EQ(broadcast_text(comm, comm.rank() == root ? text : "something else", root), text);
    }
  }
}

TEST(Texts, AreGatheredInRankOrderAlsoWhenSomeAreEmpty) {
  auto& comm = test::world();
  auto const text_of = [](int rank) {
    return rank % 2 == 0 ? std::string() : std::string(static_cast<std::size_t>(rank) * 1000, 'x');
  };

  auto const texts = all_gather_text(comm, text_of(comm.rank()));

  ASSERT_EQ(std::ssize(texts), comm.size());
  for (int rank = 0; rank < comm.size(); ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST(Texts, MayAllBeEmpty) {
  auto const texts = all_gather_text(test::world(), "");

  EXPECT_EQ(std::count(texts.begin(), texts.end(), ""), test::world().size());
}

TEST(Values, AreGatheredAndReduced) {
  auto& comm = test::world();
  std::int64_t const p = comm.size();
  std::int64_t const large = (std::int64_t{1} << 60) + comm.rank();

  auto const integers = all_gather_value(comm, large);
  auto const numbers = all_gather_value(comm, comm.rank() + 0.5);

  for (std::int64_t rank = 0; rank < p; ++rank) {
    EXPECT_EQ(integers.at(static_cast<std::size_t>(rank)), (std::int64_t{1} << 60) + rank);
    EXPECT_EQ(numbers.at(static_cast<std::size_t>(rank)), static_cast<double>(rank) + 0.5);
  }
  EXPECT_EQ(all_reduce_value(comm, large, ReduceOperation::max), (std::int64_t{1} << 60) + p - 1);
  EXPECT_EQ(all_reduce_value(comm, std::int64_t{3}, ReduceOperation::sum), 3 * p);
  EXPECT_EQ(all_reduce_value(comm, comm.rank() + 0.25, ReduceOperation::min), 0.25);
}

}  // namespace
}  // namespace ballast
