// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace ballast::detail {
namespace {

TEST(Bfloat16, IsTheUpperHalfOfFloat32) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(-2.0F), 0xc000);
  EXPECT_EQ(float_to_bfloat16(0.0F), 0x0000);
  EXPECT_EQ(float_to_bfloat16(-0.0F), 0x8000);
  EXPECT_EQ(bfloat16_to_float(0x4049), 3.140625F);
}

TEST(Bfloat16, IsRoundedToTheNearestAndTiesToEven) {
  EXPECT_EQ(float_to_bfloat16(256.0F), 0x4380);
  EXPECT_EQ(float_to_bfloat16(257.0F), 0x4380);  // between 256 and 258
  EXPECT_EQ(float_to_bfloat16(259.0F), 0x4382);  // between 258 and 260
  EXPECT_EQ(float_to_bfloat16(257.1F), 0x4381);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x7f7fffffU)), 0x7f80);  // the largest float32 becomes infinite
}

TEST(Bfloat16, KeepsInfinityAndNotANumber) {
  EXPECT_EQ(float_to_bfloat16(INFINITY), 0x7f80);
  EXPECT_EQ(float_to_bfloat16(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
  // Its payload lies in the lower half only: rounding it away would leave infinity.
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(Bfloat16, ComesBackFromFloatUnchanged) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    float const value = bfloat16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_bfloat16(value), bits);
  }
}

TEST(Reduce, AddsInRankOrder) {
  // (1e8 + 1) - 1e8 is 0 in float32, (1e8 - 1e8) + 1 is 1.
  float const big = 1e8F;
  float const one = 1.0F;
  float const minus = -1e8F;
  float result = 7;

  reduce_in_rank_order(std::vector<void const*>{&big, &one, &minus}, &result, 1, DataType::float32,
                       ReduceOperation::sum);
  EXPECT_EQ(result, 0.0F);
  reduce_in_rank_order(std::vector<void const*>{&big, &minus, &one}, &result, 1, DataType::float32,
                       ReduceOperation::sum);
  EXPECT_EQ(result, 1.0F);
}

TEST(Reduce, MayWriteOverAnyOfItsInputs) {
  for (std::size_t target = 0; target < 3; ++target) {
    std::vector<std::vector<std::int64_t>> rows(3, std::vector<std::int64_t>(5000));
    for (std::size_t row = 0; row < 3; ++row)
      std::iota(rows[row].begin(), rows[row].end(), static_cast<std::int64_t>(row) * 10);

    reduce_in_rank_order(std::vector<void const*>{rows[0].data(), rows[1].data(), rows[2].data()}, rows[target].data(),
                         5000, DataType::int64, ReduceOperation::sum);

    for (std::int64_t element = 0; element < 5000; ++element) {
      ASSERT_EQ(rows[target][static_cast<std::size_t>(element)], 3 * element + 30);
    }
  }
}

TEST(Reduce, FindsLargestAndSmallest) {
  std::vector<std::int32_t> const first = {1, -5, 3};
  std::vector<std::int32_t> const second = {2, -6, 3};
  std::vector<void const*> const rows = {first.data(), second.data()};
  std::vector<std::int32_t> result(3);

  reduce_in_rank_order(rows, result.data(), 3, DataType::int32, ReduceOperation::max);
  EXPECT_EQ(result, (std::vector<std::int32_t>{2, -5, 3}));
  reduce_in_rank_order(rows, result.data(), 3, DataType::int32, ReduceOperation::min);
  EXPECT_EQ(result, (std::vector<std::int32_t>{1, -6, 3}));
}

TEST(Reduce, AddsBfloat16InFloat32) {
  std::uint16_t const large = float_to_bfloat16(256.0F);
  std::uint16_t const one = float_to_bfloat16(1.0F);
  std::uint16_t result = 0;

  reduce_in_rank_order(std::vector<void const*>{&large, &one, &one}, &result, 1, DataType::bfloat16,
                       ReduceOperation::sum);

  EXPECT_EQ(bfloat16_to_float(result), 258.0F);  // bfloat16 sums would stay at 256
}

}  // namespace
}  // namespace ballast::detail
