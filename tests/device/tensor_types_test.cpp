// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/tensor_types.hpp"

#include "ballast/base/error.hpp"

#include <stdexcept>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(TensorTypes, EveryDataTypeHasAScalarTypeOfItsSize) {
  for (auto const type :
       {DataType::uint8, DataType::int32, DataType::int64, DataType::bfloat16, DataType::float32, DataType::float64}) {
    EXPECT_EQ(to_data_type(to_scalar_type(type)), type);
    EXPECT_EQ(static_cast<std::int64_t>(c10::elementSize(to_scalar_type(type))), size_of(type));
  }
  EXPECT_THROW(to_data_type(at::kHalf), InvalidArgument);
  EXPECT_THROW(to_data_type(at::kComplexFloat), InvalidArgument);
}

TEST(TensorTypes, TheSeedFixesWhatTheDefaultGeneratorDraws) {
  seed_default_generator(7);
  auto const first = at::randn({10});
  at::randn({3});
  seed_default_generator(7);

  EXPECT_TRUE(at::equal(at::randn({10}), first));
  seed_default_generator(8);
  EXPECT_FALSE(at::equal(at::randn({10}), first));
}

TEST(TranslateTorchErrors, NamesWhatWasDoneAndLeavesTracesOut) {
  try {
    translate_torch_errors("forward of layer 'a'", [] { at::zeros({2, 3}).matmul(at::zeros({4, 5})); });
    FAIL() << "shapes that do not fit were multiplied";
  } catch (Error const& error) {
    std::string const message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_TRUE(message.starts_with("forward of layer 'a': ")) << message;
    EXPECT_EQ(message.find("Exception raised"), message.npos) << message;
    EXPECT_EQ(message.find("frame #"), message.npos) << message;
  }
}

TEST(TranslateTorchErrors, LeavesOtherErrorsAsTheyAre) {
  EXPECT_THROW(translate_torch_errors("x", [] { throw InvalidArgument("y"); }), InvalidArgument);
  EXPECT_THROW(translate_torch_errors("x", [] { throw std::logic_error("y"); }), std::logic_error);
}

}  // namespace
}  // namespace ballast
