// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/data_type.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(DataType, HasTheSizeOfItsCppType) {
  EXPECT_EQ(size_of(DataTypeOf<std::uint8_t>::value), std::int64_t{sizeof(std::uint8_t)});
  EXPECT_EQ(size_of(DataTypeOf<char>::value), 1);
  EXPECT_EQ(size_of(DataTypeOf<std::int32_t>::value), std::int64_t{sizeof(std::int32_t)});
  EXPECT_EQ(size_of(DataTypeOf<std::int64_t>::value), std::int64_t{sizeof(std::int64_t)});
  EXPECT_EQ(size_of(DataTypeOf<float>::value), std::int64_t{sizeof(float)});
  EXPECT_EQ(size_of(DataTypeOf<double>::value), std::int64_t{sizeof(double)});
  EXPECT_EQ(size_of(DataType::bfloat16), 2);
}

TEST(DataType, IsReadFromTheNameItIsWrittenAs) {
  for (auto type :
       {DataType::uint8, DataType::int32, DataType::int64, DataType::bfloat16, DataType::float32, DataType::float64}) {
    EXPECT_EQ(parse_data_type(to_string(type)), type);
  }
  EXPECT_EQ(to_string(DataType::bfloat16), "bfloat16");
}

TEST(DataType, OfAnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    parse_data_type("float16");
    FAIL() << "nothing was thrown";
  } catch (InvalidArgument const& error) {
    EXPECT_STREQ(error.what(),
                 "data type: expected one of uint8, int32, int64, bfloat16, float32, float64, found \"float16\"");
  }
}

}  // namespace
}  // namespace ballast
