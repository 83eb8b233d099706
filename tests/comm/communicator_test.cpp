// SPDX-License-Identifier: Apache-2.0
// What every communicator on MPI must do, run for the plain one and for every decorator, with and without split counts.
// Values are closed forms of rank and element, small enough to be exact in every type.
#include "ballast/comm/checked.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/simulated.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace ballast {
namespace {

using test::error_of;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 30;

struct Kind {
  char const* name;
  std::int64_t max_count;
  bool simulated;
  bool checked;
};

std::unique_ptr<Communicator> make(Kind const& kind) {
  auto comm = make_mpi_world(kind.max_count);
  if (kind.simulated) {
    LinkDelays delays{{}, {1e-6, 1e12}, {2e-6, 1e12}, 1.0};
    for (int rank = 0; rank < comm->size(); ++rank) delays.node_of_rank.push_back(rank / 2);
    comm = make_simulated(std::move(comm), std::move(delays));
  }
  if (kind.checked) comm = make_checked(std::move(comm));
  return comm;
}

class AnyCommunicator : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Communicator> comm_ = make(GetParam());
  int rank_ = comm_->rank();
  int size_ = comm_->size();

  /// 2, 0, 5, 1, 0, 7, ... times `unit`: uneven, some of them 0.
  std::vector<std::int64_t> uneven_counts(std::int64_t unit) const {
    constexpr std::int64_t pattern[] = {2, 0, 5, 1, 0, 7, 3, 1};
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size_; ++rank) counts.push_back(pattern[rank % 8] * unit);
    return counts;
  }
};

std::int64_t sum(std::vector<std::int64_t> const& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

TEST_P(AnyCommunicator, KnowsItsPlace) {
  EXPECT_EQ(size_, test::world().size());
  EXPECT_EQ(rank_, test::world().rank());
}

TEST_P(AnyCommunicator, BroadcastsFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (std::int64_t count : {0, 1, 6, 7, 8, 30, 5000}) {
      std::vector<std::int32_t> data(static_cast<std::size_t>(count), -1);
      if (rank_ == root) std::iota(data.begin(), data.end(), 100 * root);

      comm_->broadcast(std::span(data), root).wait();

      std::vector<std::int32_t> expected(data.size());
      std::iota(expected.begin(), expected.end(), 100 * root);
      EXPECT_EQ(data, expected) << "root " << root;
    }
  }
}

template <class T>
void expect_reductions(Communicator& comm) {
  auto const p = static_cast<std::int64_t>(comm.size());
  for (std::int64_t count : {0, 1, 7, 23, 10000}) {
    auto const base = [](std::int64_t element) { return element % 20; };
    std::vector<T> mine(static_cast<std::size_t>(count));
    for (std::int64_t element = 0; element < count; ++element) {
      mine[static_cast<std::size_t>(element)] = static_cast<T>(base(element) + comm.rank());
    }
    auto total = mine;
    auto largest = mine;
    auto smallest = mine;

    comm.all_reduce(std::span(total)).wait();
    comm.all_reduce(std::span(largest), ReduceOperation::max).wait();
    comm.all_reduce(std::span(smallest), ReduceOperation::min).wait();

    int wrong = 0;
    for (std::int64_t element = 0; element < count; ++element) {
      auto const at = static_cast<std::size_t>(element);
      wrong += total[at] != static_cast<T>(p * base(element) + p * (p - 1) / 2);
      wrong += largest[at] != static_cast<T>(base(element) + p - 1);
      wrong += smallest[at] != static_cast<T>(base(element));
    }
    EXPECT_EQ(wrong, 0) << count << " elements";
  }
}

TEST_P(AnyCommunicator, ReducesEveryType) {
  expect_reductions<std::uint8_t>(*comm_);
  expect_reductions<std::int32_t>(*comm_);
  expect_reductions<std::int64_t>(*comm_);
  expect_reductions<float>(*comm_);
  expect_reductions<double>(*comm_);
}

TEST_P(AnyCommunicator, SumsBfloat16InFloat32AndRoundsOnce) {
  // 256 from rank 0 and 1 from all others: bfloat16 sums would stay at 256. The results below are 256 + p - 1, rounded.
  std::uint16_t const expected[] = {0, 0x4380, 0x4380, 0x4381, 0x4382, 0x4382, 0x4382, 0x4383, 0x4384};
  for (std::size_t count : {1u, 5u, 3000u}) {
    std::vector<std::uint16_t> data(count, rank_ == 0 ? 0x4380 : 0x3f80);
    std::vector<std::uint16_t> largest(count, rank_ == 0 ? 0x4380 : 0x3f80);

    comm_->all_reduce(data.data(), std::ssize(data), DataType::bfloat16, ReduceOperation::sum).wait();
    comm_->all_reduce(largest.data(), std::ssize(data), DataType::bfloat16, ReduceOperation::max).wait();

    EXPECT_EQ(std::count(data.begin(), data.end(), expected[size_]), std::ssize(data)) << std::hex << data[0];
    EXPECT_EQ(std::count(largest.begin(), largest.end(), 0x4380), std::ssize(data));
  }
}

TEST_P(AnyCommunicator, GathersEqualCounts) {
  for (std::int64_t count : {0, 1, 3, 700}) {
    std::vector<double> const mine(static_cast<std::size_t>(count), rank_ + 0.5);
    std::vector<double> all(static_cast<std::size_t>(count * size_));

    comm_->all_gather(std::span(mine), std::span(all)).wait();

    for (std::int64_t element = 0; element < count * size_; ++element) {
      ASSERT_EQ(all[static_cast<std::size_t>(element)], static_cast<double>(element / count) + 0.5);
    }
  }
}

TEST_P(AnyCommunicator, GathersUnevenCountsFromElsewhereOrInPlace) {
  for (std::int64_t unit : {0, 1, 4, 1000}) {
    for (bool in_place : {false, true}) {
      auto const counts = uneven_counts(unit);
      std::vector<std::int64_t> expected;
      std::int64_t offset = 0;
      for (int rank = 0; rank < size_; ++rank) {
        if (rank == rank_) offset = std::ssize(expected);
        for (std::int64_t element = 0; element < counts[static_cast<std::size_t>(rank)]; ++element) {
          expected.push_back(rank * 100000 + element);
        }
      }
      std::vector<std::int64_t> all(expected.size(), -1);
      std::vector<std::int64_t> const mine(expected.begin() + offset,
                                           expected.begin() + offset + counts[static_cast<std::size_t>(rank_)]);
      if (in_place) std::copy(mine.begin(), mine.end(), all.begin() + offset);

      void const* from = in_place ? static_cast<void const*>(all.data() + offset) : mine.data();
      comm_->all_gather_v(from, all.data(), counts, DataType::int64).wait();

      EXPECT_EQ(all, expected) << "unit " << unit << (in_place ? ", in place" : "");
    }
  }
}

TEST_P(AnyCommunicator, ReduceScattersUnevenCounts) {
  // The last unit makes intervals of several segments (256 KiB each), and one that ends inside a segment.
  for (std::int64_t unit : {0, 1, 4, 1000, 90001}) {
    if (unit > 1000 && GetParam().max_count < kNoLimit) continue;  // a million messages would prove nothing more
    auto const counts = uneven_counts(unit);
    std::vector<float> all(static_cast<std::size_t>(sum(counts)));
    for (std::size_t element = 0; element < all.size(); ++element) {
      all[element] = static_cast<float>(element % 1000) + static_cast<float>(rank_);
    }
    std::vector<float> mine(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]), -1.0F);

    comm_->reduce_scatter_v(all.data(), mine.data(), counts, DataType::float32).wait();

    auto const offset =
        static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank_, std::int64_t{0}));
    int wrong = 0;
    for (std::size_t element = 0; element < mine.size(); ++element) {
      auto const base = static_cast<float>((offset + element) % 1000);
      wrong += mine[element] != static_cast<float>(size_) * base + static_cast<float>(size_ * (size_ - 1) / 2);
    }
    EXPECT_EQ(wrong, 0) << "unit " << unit;
  }
}

TEST_P(AnyCommunicator, ReduceScattersIntoItsOwnPlaceAndEveryType) {
  auto const counts = uneven_counts(10);
  auto const offset = std::accumulate(counts.begin(), counts.begin() + rank_, std::int64_t{0});
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(sum(counts)), 3);
  std::vector<double> doubles(bytes.size(), 0.25);
  std::vector<std::uint16_t> bfloats(bytes.size(), 0x3f80);

  comm_->reduce_scatter_v(bytes.data(), bytes.data() + offset, counts, DataType::uint8).wait();
  comm_->reduce_scatter_v(doubles.data(), doubles.data() + offset, counts, DataType::float64).wait();
  comm_->reduce_scatter_v(bfloats.data(), bfloats.data() + offset, counts, DataType::bfloat16).wait();

  constexpr std::uint16_t small_numbers[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
  for (std::int64_t element = 0; element < counts[static_cast<std::size_t>(rank_)]; ++element) {
    auto const at = static_cast<std::size_t>(offset + element);
    EXPECT_EQ(bytes[at], 3 * size_);
    EXPECT_EQ(doubles[at], 0.25 * size_);
    EXPECT_EQ(bfloats[at], small_numbers[size_]);
  }
}

TEST_P(AnyCommunicator, SumsInRankOrderToTheLastBit) {
  std::int64_t const share = GetParam().max_count < kNoLimit ? 50 : 3000;
  auto const count = static_cast<std::size_t>(share * size_);
  std::mt19937 generator(static_cast<unsigned>(rank_) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> mine(count);
  for (auto& value : mine) value = normal(generator) * std::pow(10.0F, normal(generator));
  std::vector<float> everything(count * static_cast<std::size_t>(size_));
  comm_->all_gather(std::span<float const>(mine), std::span(everything)).wait();
  std::vector<float> expected(count, 0.0F);
  for (int rank = 0; rank < size_; ++rank) {
    auto const row = static_cast<std::size_t>(rank) * count;
    for (std::size_t element = 0; element < count; ++element) {
      expected[element] = rank == 0 ? everything[element] : expected[element] + everything[row + element];
    }
  }
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), share);

  for (int repetition = 0; repetition < 3; ++repetition) {
    std::vector<float> scattered(static_cast<std::size_t>(share));
    comm_->reduce_scatter_v(mine.data(), scattered.data(), counts, DataType::float32).wait();
    EXPECT_EQ(std::memcmp(scattered.data(), expected.data() + rank_ * share, scattered.size() * sizeof(float)), 0);
  }
}

TEST_P(AnyCommunicator, GivesAllRanksTheSameBitsEveryTime) {
  for (std::size_t count : {3u, 700u, 20000u}) {
    std::mt19937 generator(static_cast<unsigned>(rank_) + 1);
    std::normal_distribution<float> normal;
    std::vector<float> mine(count);
    for (auto& value : mine) value = normal(generator);
    auto first = mine;
    auto second = mine;

    comm_->all_reduce(std::span(first)).wait();
    comm_->all_reduce(std::span(second)).wait();
    auto of_root = first;
    comm_->broadcast(std::span(of_root), 0).wait();

    EXPECT_EQ(std::memcmp(first.data(), second.data(), count * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(first.data(), of_root.data(), count * sizeof(float)), 0);
  }
}

TEST_P(AnyCommunicator, LetsRanksWaitInAnyOrder) {
  constexpr int num_operations = 6;
  std::int64_t const share = GetParam().max_count < kNoLimit ? 100 : 4000;
  auto const count = static_cast<std::size_t>(share);
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), share);
  std::vector<std::vector<float>> sums(num_operations, std::vector<float>(count));
  std::vector<std::vector<float>> inputs(num_operations, std::vector<float>(count * static_cast<std::size_t>(size_)));
  std::vector<std::vector<std::uint16_t>> bfloats(num_operations, std::vector<std::uint16_t>(count, 0x3f80));
  std::vector<Request> requests;
  for (int operation = 0; operation < num_operations; ++operation) {
    auto const at = static_cast<std::size_t>(operation);
    std::fill(inputs[at].begin(), inputs[at].end(), static_cast<float>(operation + rank_));
    requests.push_back(comm_->reduce_scatter_v(inputs[at].data(), sums[at].data(), counts, DataType::float32));
    requests.push_back(
        comm_->all_reduce(bfloats[at].data(), std::ssize(bfloats[at]), DataType::bfloat16, ReduceOperation::max));
  }

  if (rank_ % 2 == 1) std::reverse(requests.begin(), requests.end());
  for (auto& request : requests) request.wait();

  for (int operation = 0; operation < num_operations; ++operation) {
    auto const expected = static_cast<float>(size_ * operation + size_ * (size_ - 1) / 2);
    auto const& row = sums[static_cast<std::size_t>(operation)];
    EXPECT_EQ(std::count(row.begin(), row.end(), expected), std::ssize(row));
    auto const& bfloat_row = bfloats[static_cast<std::size_t>(operation)];
    EXPECT_EQ(std::count(bfloat_row.begin(), bfloat_row.end(), 0x3f80), std::ssize(bfloat_row));
  }
}

TEST_P(AnyCommunicator, BarrierHoldsEveryRankUntilTheLastCame) {
  std::int32_t token = 0;
  if (rank_ > 0) comm_->recv(std::span(&token, 1), rank_ - 1, 0).wait();  // so they come one after the other
  auto const seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  double const came = seconds();
  Request sent;
  if (rank_ + 1 < size_) sent = comm_->send(std::span<std::int32_t const>(&token, 1), rank_ + 1, 0);
  sent.wait();

  comm_->barrier();

  double const left = seconds();
  EXPECT_LE(all_reduce_value(*comm_, came, ReduceOperation::max), all_reduce_value(*comm_, left, ReduceOperation::min));
}

TEST_P(AnyCommunicator, SplitsByColorAndOrdersByKey) {
  auto part = comm_->split(rank_ % 2, -rank_);

  ASSERT_NE(part, nullptr);
  std::int32_t const mine = rank_;
  std::vector<std::int32_t> members(static_cast<std::size_t>(part->size()));
  part->all_gather(std::span<std::int32_t const>(&mine, 1), std::span(members)).wait();
  std::vector<std::int32_t> expected;
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (rank % 2 == rank_ % 2) expected.push_back(rank);
  }
  EXPECT_EQ(members, expected);
}

TEST_P(AnyCommunicator, SplitsRanksOffThatHaveNoColor) {
  auto part = comm_->split(rank_ == 0 ? -1 : 5, 0);

  EXPECT_EQ(part == nullptr, rank_ == 0);
  if (part) {
    EXPECT_EQ(part->size(), size_ - 1);
  }
}

TEST_P(AnyCommunicator, SplitsPartsAgain) {
  auto half = comm_->split(rank_ / 2, rank_);
  auto quarter = half->split(half->rank(), 0);

  EXPECT_EQ(quarter->size(), 1);
  std::int64_t value = rank_;
  EXPECT_EQ(all_reduce_value(*quarter, value, ReduceOperation::sum), rank_);
}

TEST_P(AnyCommunicator, SplitsByNode) {
  auto node = comm_->split_by_node();

  ASSERT_NE(node, nullptr);
  bool const simulated = GetParam().simulated;  // two ranks per node there; else all share this machine
  EXPECT_EQ(node->size(), simulated ? std::min(2, size_ - rank_ / 2 * 2) : size_);
  EXPECT_EQ(node->rank(), simulated ? rank_ % 2 : rank_);
}

TEST_P(AnyCommunicator, KeepsMessagesOfItsPartsApart) {
  auto part = comm_->split(0, rank_);
  int const next = (rank_ + 1) % size_;
  int const previous = (rank_ + size_ - 1) % size_;
  std::int32_t const for_world = 1;
  std::int32_t const for_part = 2;
  std::int32_t from_world = 0;
  std::int32_t from_part = 0;

  auto first = comm_->send(std::span(&for_world, 1), next, 9);
  auto second = part->send(std::span(&for_part, 1), next, 9);
  part->recv(std::span(&from_part, 1), previous, 9).wait();
  comm_->recv(std::span(&from_world, 1), previous, 9).wait();
  first.wait();
  second.wait();

  EXPECT_EQ(from_world, 1);
  EXPECT_EQ(from_part, 2);
}

TEST_P(AnyCommunicator, RefusesBadArgumentsBeforeItCommunicates) {
  std::vector<float> data(4);
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), 1);
  std::vector<std::int64_t> const too_many(static_cast<std::size_t>(size_) + 1, 1);
  std::vector<std::int64_t> negative = counts;
  negative.back() = -1;
  auto const type = DataType::float32;
  auto const message = [](auto const& work) { return error_of<InvalidArgument>(work); };
  auto const n = std::to_string(size_);

  EXPECT_EQ(message([&] { comm_->broadcast(data.data(), -1, type, 0).wait(); }),
            "broadcast: expected a count >= 0, found -1");
  EXPECT_EQ(message([&] { comm_->broadcast(data.data(), 4, type, size_).wait(); }),
            "broadcast: expected a root from 0 to " + std::to_string(size_ - 1) + ", found " + n);
  EXPECT_EQ(message([&] { comm_->all_reduce(nullptr, 4, type, ReduceOperation::sum).wait(); }),
            "all_reduce: no buffer for 4 elements of float32");
  EXPECT_EQ(message([&] { comm_->all_gather_v(data.data(), data.data(), too_many, type).wait(); }),
            "all_gather_v: expected one count for each of " + n + " ranks, found " + std::to_string(size_ + 1));
  EXPECT_EQ(message([&] { comm_->reduce_scatter_v(data.data(), data.data(), negative, type).wait(); }),
            "reduce_scatter_v: expected counts >= 0, found -1 for rank " + std::to_string(size_ - 1));
  EXPECT_EQ(message([&] { comm_->send(data.data(), 4, type, -1, 0).wait(); }),
            "send: expected a destination from 0 to " + std::to_string(size_ - 1) + ", found -1");
  EXPECT_EQ(message([&] { comm_->recv(data.data(), 4, type, 0, 32768).wait(); }),
            "recv: expected a tag from 0 to 32767, found 32768");
  EXPECT_EQ(message([&] { comm_->recv(data.data(), 4, static_cast<DataType>(99), 0, 0).wait(); }),
            "recv: data type 99 is unknown");
  std::vector<float> room(static_cast<std::size_t>(4 * size_ + 1));
  EXPECT_EQ(message([&] { comm_->all_gather(std::span<float const>(data), std::span(room)).wait(); }),
            "all_gather: expected room for " + std::to_string(4 * size_) + " elements (" + n + " ranks of 4), found " +
                std::to_string(4 * size_ + 1));
}

TEST_P(AnyCommunicator, SeesNoFailureWhereThereIsNone) { EXPECT_NO_THROW(comm_->check_failure()); }

INSTANTIATE_TEST_SUITE_P(Kinds, AnyCommunicator,
                         testing::Values(Kind{"plain", kNoLimit, false, false},
                                         Kind{"counts_split_at_7", 7, false, false},
                                         Kind{"checked", kNoLimit, false, true},
                                         Kind{"simulated", kNoLimit, true, false},
                                         Kind{"checked_simulated_split_at_7", 7, true, true}),
                         [](auto const& info) { return info.param.name; });

}  // namespace
}  // namespace ballast
