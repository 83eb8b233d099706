// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/device_memory.hpp"

#include "ballast/base/error.hpp"
#include "ballast/device/tensor_types.hpp"

#include <cstdint>
#include <thread>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class DeviceMemory : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    install_device_memory();
    trim_device_memory();
    reset_device_peak();
    before_ = device_memory();
  }
  void TearDown() override {
    set_device_capacity(std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(device_memory().current_bytes, before_.current_bytes) << "the test left tensors behind";
  }
  std::int64_t current() const { return device_memory().current_bytes - before_.current_bytes; }
  std::int64_t peak() const { return device_memory().peak_bytes - before_.current_bytes; }
  std::int64_t reserved() const { return device_memory().reserved_bytes - before_.reserved_bytes; }

  DeviceMemoryStats before_;
};

TEST_F(DeviceMemory, CountsTheRoundedBytesOfEachTensor) {
  auto const one = at::empty({1}, at::kFloat);      // 4 bytes
  auto const exact = at::empty({128}, at::kFloat);  // 512 bytes
  auto const over = at::empty({129}, at::kFloat);   // 516 bytes
  auto const nothing = at::empty({0}, at::kFloat);
  auto const large = at::empty({3 * kMiB + 1}, at::kByte);
  auto const view = large.slice(0, 10, 20);

  EXPECT_EQ(current(), 512 + 512 + 1024 + 0 + 3 * kMiB + 512);
  EXPECT_EQ(device_memory().num_allocations - before_.num_allocations, 4);
}

TEST_F(DeviceMemory, PeakIsTheLargestSumSinceTheReset) {
  { auto const gone = at::empty({10 * kMiB}, at::kByte); }
  auto const kept = at::empty({1 * kMiB}, at::kByte);

  EXPECT_EQ(peak(), 10 * kMiB);
  reset_device_peak();
  EXPECT_EQ(peak(), 1 * kMiB);
  { auto const gone = at::empty({2 * kMiB}, at::kByte); }
  EXPECT_EQ(peak(), 3 * kMiB);
}

TEST_F(DeviceMemory, ReusesABlockThatIsAtMostAQuarterTooLargeButCountsTheRequest) {
  void* first = nullptr;
  {
    auto const tensor = at::empty({10 * kMiB}, at::kByte);
    first = tensor.data_ptr();
  }
  auto const smaller = at::empty({8 * kMiB}, at::kByte);

  EXPECT_EQ(smaller.data_ptr(), first);
  EXPECT_EQ(current(), 8 * kMiB);
  EXPECT_EQ(reserved(), 10 * kMiB);
}

TEST_F(DeviceMemory, DoesNotSpendABlockOnAMuchSmallerRequest) {
  { auto const tensor = at::empty({16 * kMiB}, at::kByte); }
  auto const small = at::empty({8 * kMiB}, at::kByte);

  EXPECT_EQ(reserved(), 24 * kMiB);
}

TEST_F(DeviceMemory, TakesTheSmallestBlockThatFits) {
  void* wanted = nullptr;
  {
    auto const larger = at::empty({10 * kMiB}, at::kByte);
    auto const fitting = at::empty({9 * kMiB}, at::kByte);
    wanted = fitting.data_ptr();
  }
  auto const tensor = at::empty({9 * kMiB - 5}, at::kByte);

  EXPECT_EQ(tensor.data_ptr(), wanted);
}

TEST_F(DeviceMemory, TrimReturnsCachedBlocksAndKeepsLiveOnes) {
  auto const live = at::ones({4 * kMiB}, at::kByte);
  { auto const dead = at::empty({16 * kMiB}, at::kByte); }

  trim_device_memory();

  EXPECT_EQ(reserved(), 4 * kMiB);
  EXPECT_EQ(live.sum().item<std::int64_t>(), 4 * kMiB);
}

TEST_F(DeviceMemory, ACacheOfSizesThatNobodyNeedsAnyMoreIsReturned) {
  for (std::int64_t size = 32 * kMiB; size < 400 * kMiB; size += size / 2) at::empty({size}, at::kByte);

  EXPECT_LT(reserved(), 3 * 400 * kMiB);
}

TEST_F(DeviceMemory, LargeBlocksAreAlignedForHugePagesAndSmallOnesToCacheLines) {
  auto const large = at::empty({2 * kMiB + 100}, at::kByte);
  auto const small = at::empty({100}, at::kByte);

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data_ptr()) % (2 * kMiB), 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data_ptr()) % 64, 0U);
}

TEST_F(DeviceMemory, AnAllocationBeyondTheCapacityIsOneDeviceErrorAndTheDeviceGoesOn) {
  set_device_capacity(device_memory().current_bytes + 8 * kMiB);
  auto const held = at::empty({6 * kMiB}, at::kByte);

  std::string message;
  try {
    translate_torch_errors("forward of layer 'block3', micro-batch 2", [] { at::empty({3 * kMiB}, at::kByte); });
  } catch (DeviceError const& error) {
    message = error.what();
  }

  EXPECT_TRUE(
      message.starts_with("forward of layer 'block3', micro-batch 2: out of device memory: 3.00 MiB asked for, "))
      << message;
  EXPECT_NE(message.find(" in use of "), message.npos) << message;
  EXPECT_EQ(message.find("Exception raised"), message.npos) << message;
  EXPECT_EQ(message.find('\n'), message.npos) << message;
  EXPECT_EQ(current(), 6 * kMiB);
  auto const fits = at::empty({2 * kMiB}, at::kByte);
  EXPECT_EQ(current(), 8 * kMiB);
}

TEST_F(DeviceMemory, CachedBlocksDoNotCountAgainstTheCapacity) {
  set_device_capacity(device_memory().current_bytes + 20 * kMiB);
  { auto const dead = at::empty({16 * kMiB}, at::kByte); }

  auto const tensor = at::empty({10 * kMiB}, at::kByte);

  EXPECT_EQ(current(), 10 * kMiB);
}

TEST_F(DeviceMemory, ACapacityThatIsNotPositiveIsRefused) {
  EXPECT_THROW(set_device_capacity(0), InvalidArgument);
  EXPECT_THROW(set_device_capacity(-1), InvalidArgument);
}

TEST_F(DeviceMemory, CountsRightWhenThreadsAllocateAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < 2000; ++round) {
        auto const a = at::empty({1 + 100 * (round % 50)}, at::kFloat);
        auto const b = at::full({64 * (thread + 1)}, thread, at::kInt);
        ASSERT_TRUE(b[0].item<int>() == thread && b[-1].item<int>() == thread);
      }
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(current(), 0);
}

TEST_F(DeviceMemory, TensorsResizedInPlaceAreCountedByTheirNewSize) {
  auto tensor = at::empty({4 * kMiB}, at::kByte);
  tensor.resize_({6 * kMiB});

  EXPECT_EQ(current(), 6 * kMiB);
}

}  // namespace
}  // namespace ballast
