// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/model/island.hpp"
#include "ballast/model/layer.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

at::Tensor integers(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

TEST(CrossEntropyLoss, IsTheSumOfMinusLogProbabilitiesOfTheTargets) {
  auto const logits = at::tensor({1.0, 2.0, 3.0, 0.0, 0.0, 0.0}, at::kDouble).view({2, 3});

  Loss const loss = cross_entropy_loss(Tensors{logits}, integers({2, 0}));

  double const first = -(3.0 - std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)));
  EXPECT_NEAR(loss.sum.item<double>(), first + std::log(3.0), 1e-14);
  EXPECT_EQ(loss.weight, 2.0);
}

TEST(CrossEntropyLoss, EveryNegativeTargetIsLeftOutOfSumWeightAndGradient) {
  auto const logits = at::randn({2, 3, 5}, at::kDouble);
  auto const targets = integers({1, -1, 4, -100, 0, -7}).view({2, 3});

  auto const all = loss_and_gradient(cross_entropy_loss, {logits}, targets);

  auto const kept = logits.view({6, 5}).index_select(0, integers({0, 2, 4}));
  auto const expected = loss_and_gradient(cross_entropy_loss, {kept}, integers({1, 4, 0}));
  EXPECT_NEAR(all.sum, expected.sum, 1e-13);
  EXPECT_EQ(all.weight, 3.0);
  auto const gradient = all.output_gradients.at(0).view({6, 5});
  EXPECT_EQ(gradient.index_select(0, integers({1, 3, 5})).abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(
      at::allclose(gradient.index_select(0, integers({0, 2, 4})), expected.output_gradients.at(0), 1e-13, 1e-14));
}

TEST(CrossEntropyLoss, NothingToCountGivesZero) {
  auto const loss = loss_and_gradient(cross_entropy_loss, {at::randn({2, 5})}, integers({-1, -1}));

  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_EQ(loss.weight, 0.0);
  EXPECT_EQ(loss.output_gradients.at(0).abs().sum().item<double>(), 0.0);
}

TEST(CrossEntropyLoss, PartsOfABatchAddUpToTheWhole) {
  auto const logits = at::randn({7, 4, 9}, at::kDouble);
  auto const targets = at::randint(-1, 9, {7, 4}, at::kLong);
  Loss const whole = cross_entropy_loss(Tensors{logits}, targets);

  double sum = 0.0;
  double weight = 0.0;
  for (auto const& [begin, end] : {std::array{0, 3}, std::array{3, 4}, std::array{4, 7}}) {
    Loss const part = cross_entropy_loss(Tensors{logits.slice(0, begin, end)}, targets.slice(0, begin, end));
    sum += part.sum.item<double>();
    weight += part.weight;
  }
  EXPECT_NEAR(sum, whole.sum.item<double>(), 1e-12);
  EXPECT_EQ(weight, whole.weight);
}

TEST(SquaredErrorLoss, SumsSquaresInThePrecisionOfTheOutputs) {
  auto const outputs = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({2, 2});
  auto const targets = at::tensor({1.5, 2.0, 1.0, 4.0}, at::kFloat).view({2, 2});

  auto const loss = loss_and_gradient(squared_error_loss, {outputs}, targets);

  EXPECT_EQ(loss.sum, 0.25 + 4.0);
  EXPECT_EQ(loss.weight, 4.0);
  EXPECT_TRUE(at::equal(loss.output_gradients.at(0), 2 * (outputs - targets)));
}

TEST(SquaredErrorLoss, RefusesTargetsOfAnotherShapeInsteadOfBroadcasting) {
  EXPECT_THROW(squared_error_loss(Tensors{at::zeros({2, 3})}, at::zeros({2, 1})), InvalidArgument);
  EXPECT_THROW(squared_error_loss({at::zeros({2}), at::zeros({2})}, at::zeros({2})), InvalidArgument);
}

TEST(LossOnly, EqualsTheLossWithGradient) {
  auto const logits = at::randn({3, 5});
  auto const targets = integers({1, 2, 3});

  auto const with = loss_and_gradient(cross_entropy_loss, {logits}, targets);
  auto const without = loss_only(cross_entropy_loss, {logits}, targets);

  EXPECT_EQ(with.sum, without.sum);
  EXPECT_EQ(with.weight, without.weight);
  EXPECT_TRUE(without.output_gradients.empty());
}

}  // namespace
}  // namespace ballast
