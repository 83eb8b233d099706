// SPDX-License-Identifier: Apache-2.0
#include "ballast/train/data.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

class TextFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("ballast-text-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    // Read in name order, whatever the order of creation; an empty file in between.
    std::ofstream(folder_ / "b.txt") << "fghij";
    std::ofstream(folder_ / "a.txt") << "abcde";
    std::ofstream(folder_ / "aa.txt");
    std::ofstream(folder_ / "c.txt") << "klmnopqrst";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string text(at::Tensor const& row) {
    std::string result;
    for (std::int64_t place = 0; place < row.size(0); ++place)
      result += static_cast<char>(row[place].item<std::int64_t>());
    return result;
  }

  std::filesystem::path folder_;
};

TEST(SampleIndices, DependOnSeedAndStepOnly) {
  auto const indices = sample_indices(1, 2, 64, 1000);

  EXPECT_EQ(sample_indices(1, 2, 64, 1000), indices);
  EXPECT_NE(sample_indices(2, 2, 64, 1000), indices);
  EXPECT_NE(sample_indices(1, 3, 64, 1000), indices);
  // A larger batch begins with the smaller one.
  auto const more = sample_indices(1, 2, 128, 1000);
  EXPECT_TRUE(std::equal(indices.begin(), indices.end(), more.begin()));
}

TEST(SampleIndices, AreTheSameInEveryRelease) {
  // Written down once: a change would silently change every training that is resumed.
  EXPECT_EQ(sample_indices(7, 0, 4, 1'000'000), (std::vector<std::int64_t>{652662, 565677, 135773, 605569}));
}

TEST(SampleIndices, AreSpreadEvenlyOverTheDataSet) {
  std::array<int, 10> counts{};
  for (std::int64_t step = 0; step < 100; ++step) {
    for (auto const index : sample_indices(3, step, 100, 10)) {
      ASSERT_GE(index, 0);
      ASSERT_LT(index, 10);
      ++counts[static_cast<std::size_t>(index)];
    }
  }
  // 1000 expected each, standard deviation 30.
  for (int const count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(SampleIndices, RefuseAnEmptyDataSet) { EXPECT_THROW(sample_indices(0, 0, 1, 0), InvalidArgument); }

TEST_F(TextFiles, SamplesAreWindowsAndTargetsTheNextBytes) {
  auto const data = make_text_dataset({folder_}, 4, {});

  ASSERT_EQ(data->size(), 16);
  std::array<std::int64_t, 3> const indices{0, 15, 3};
  auto const batch = data->samples(indices);
  ASSERT_EQ(batch.inputs.size(), 1u);
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(batch.inputs[0].scalar_type(), at::kLong);
  EXPECT_EQ(text(batch.inputs[0][0]), "abcd");
  EXPECT_EQ(text(batch.targets[0]), "bcde");
  EXPECT_EQ(text(batch.inputs[0][1]), "pqrs");
  EXPECT_EQ(text(batch.targets[1]), "qrst");
  EXPECT_EQ(text(batch.inputs[0][2]), "defg");
  EXPECT_TRUE(at::equal(data->inputs(indices)[0], batch.inputs[0]));
  EXPECT_TRUE(at::equal(data->targets(indices), batch.targets));
}

TEST_F(TextFiles, SplitsDoNotOverlap) {
  auto const train = make_text_dataset({folder_}, 4, {0.0, 0.75});
  auto const validation = make_text_dataset({folder_}, 4, {0.75, 1.0});

  ASSERT_EQ(train->size(), 11);
  ASSERT_EQ(validation->size(), 1);
  std::array<std::int64_t, 1> const last{10};
  std::array<std::int64_t, 1> const first{0};
  EXPECT_EQ(text(train->samples(last).targets[0]), "lmno");
  EXPECT_EQ(text(validation->samples(first).inputs[0][0]), "pqrs");
}

TEST_F(TextFiles, BytesAboveAsciiArePositive) {
  std::ofstream(folder_ / "d.txt") << "\xff\xfe";
  auto const data = make_text_dataset({folder_ / "d.txt"}, 1, {});

  std::array<std::int64_t, 1> const first{0};
  EXPECT_EQ(data->samples(first).inputs[0].item<std::int64_t>(), 255);
  EXPECT_EQ(data->samples(first).targets.item<std::int64_t>(), 254);
}

TEST_F(TextFiles, AFolderGivesItsTextsWithoutLinksAndBinaries) {
  std::ofstream(folder_ / "a.dat") << std::string("\0\1\2", 3);
  std::filesystem::create_symlink("a.txt", folder_ / "a.u8");

  EXPECT_EQ(make_text_dataset({folder_}, 4, {})->size(), 20 - 4);
  EXPECT_EQ(make_text_dataset({folder_ / "a.txt", folder_ / "a.dat", folder_ / "a.u8"}, 4, {})->size(), 13 - 4)
      << "a file that is named is taken";
}

TEST_F(TextFiles, FaultsAreNamed) {
  EXPECT_THROW(make_text_dataset({folder_ / "missing"}, 4, {}), InvalidArgument);
  EXPECT_THROW(make_text_dataset({folder_}, 20, {}), InvalidArgument);
  EXPECT_THROW(make_text_dataset({folder_}, 4, {0.9, 1.0}), InvalidArgument);
  EXPECT_THROW(make_text_dataset({folder_}, 4, {0.5, 0.25}), InvalidArgument);
  EXPECT_THROW(make_text_dataset({folder_}, 0, {}), InvalidArgument);
  EXPECT_NO_THROW(make_text_dataset({folder_}, 19, {}));
}

TEST(RegressionDataset, IsAFixedSmoothFunctionOfItsInputs) {
  auto const data = make_regression_dataset(100, 3, 2, 9);
  std::vector<std::int64_t> indices(100);
  std::iota(indices.begin(), indices.end(), 0);
  auto const batch = data->samples(indices);

  EXPECT_EQ(data->size(), 100);
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{100, 3}));
  EXPECT_EQ(batch.targets.sizes(), (std::vector<std::int64_t>{100, 2}));
  EXPECT_LE(batch.inputs[0].abs().max().item<float>(), 1.0f);
  EXPECT_NEAR(batch.inputs[0].mean().item<float>(), 0.0f, 0.15f);
  EXPECT_GT(batch.targets.std(0).min().item<float>(), 0.1f);

  std::array<std::int64_t, 2> const some{42, 7};
  EXPECT_TRUE(at::equal(data->inputs(some)[0][0], batch.inputs[0][42]));
  EXPECT_TRUE(at::equal(data->targets(some)[1], batch.targets[7]));
  EXPECT_FALSE(at::equal(make_regression_dataset(100, 3, 2, 10)->targets(some), data->targets(some)));
  EXPECT_THROW(make_regression_dataset(0, 3, 2, 9), InvalidArgument);
}

}  // namespace
}  // namespace ballast
