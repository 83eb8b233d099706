// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/gpt.hpp"

#include "ballast/base/error.hpp"
#include "ballast/model/island.hpp"
#include "ballast/model/mlp.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

std::int64_t num_parameters(Model const& model) {
  std::int64_t sum = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    for (auto const& parameter : model.build(layer, 0)->parameters()) sum += parameter.tensor.numel();
  }
  return sum;
}

Tensors run(Model const& model, Tensors values) {
  for (int layer = 0; layer < model.num_layers(); ++layer) values = forward_only(*model.build(layer, 1), values);
  return values;
}

TEST(Gpt, HasEmbedBlocksAndHeadOfOneKind) {
  Model const model = make_gpt({.num_layers = 3});

  EXPECT_EQ(model.layer_names(), (std::vector<std::string>{"embed", "block0", "block1", "block2", "head"}));
  EXPECT_EQ(model.layer_kind(1), model.layer_kind(3));
  EXPECT_FALSE(model.layer_kind(1).empty());
}

TEST(Gpt, NumberOfParametersIsTheClosedForm) {
  constexpr std::int64_t V = 100, T = 24, C = 32, L = 3;

  auto const counted =
      num_parameters(make_gpt({.vocabulary = V, .context = T, .num_layers = L, .num_heads = 4, .channels = C}));

  EXPECT_EQ(counted, (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C + C * V);
}

TEST(Gpt, GivesLogitsOfTheVocabularyForEveryPosition) {
  Model const model = make_gpt({.vocabulary = 50, .context = 16, .num_layers = 2, .num_heads = 2, .channels = 16});

  EXPECT_EQ(run(model, {at::randint(50, {3, 16}, at::kLong)}).at(0).sizes(), at::IntArrayRef({3, 16, 50}));
  EXPECT_EQ(run(model, {at::randint(50, {2, 5}, at::kLong)}).at(0).sizes(), at::IntArrayRef({2, 5, 50}));
  EXPECT_THROW(run(model, {at::randint(50, {2, 17}, at::kLong)}), InvalidArgument);
}

TEST(Gpt, ALaterTokenDoesNotChangeEarlierLogits) {
  Model const model = make_gpt({.vocabulary = 50, .context = 16, .num_layers = 2, .num_heads = 2, .channels = 16});
  auto const tokens = at::randint(50, {2, 16}, at::kLong);
  auto changed = tokens.clone();
  changed.select(1, 9).add_(1).remainder_(50);

  auto const before = run(model, {tokens}).at(0);
  auto const after = run(model, {changed}).at(0);

  EXPECT_TRUE(at::equal(before.slice(1, 0, 9), after.slice(1, 0, 9)));
  for (std::int64_t position = 9; position < 16; ++position) {
    EXPECT_FALSE(at::equal(before.select(1, position), after.select(1, position))) << position;
  }
}

TEST(Gpt, SamplesOfABatchDoNotMix) {
  Model const model = make_gpt({.vocabulary = 50, .context = 16, .num_layers = 1, .num_heads = 2, .channels = 16});
  auto const tokens = at::randint(50, {4, 16}, at::kLong);

  auto const all = run(model, {tokens}).at(0);

  EXPECT_TRUE(at::allclose(run(model, {tokens.slice(0, 2, 3)}).at(0), all.slice(0, 2, 3), 1e-5, 1e-6));
}

TEST(Gpt, StartsNearTheLossOfGuessing) {
  Model const model = make_gpt({});
  auto const tokens = at::randint(256, {4, 128}, at::kLong);

  auto const loss = loss_only(model.loss(), run(model, {tokens}), at::randint(256, {4, 128}, at::kLong));

  EXPECT_EQ(loss.weight, 4.0 * 128.0);
  EXPECT_NEAR(loss.sum / loss.weight, std::log(256.0), 0.1);
}

TEST(Gpt, RefusesOptionsThatDoNotFitTogether) {
  EXPECT_THROW(make_gpt({.num_heads = 3, .channels = 128}), InvalidArgument);
  EXPECT_THROW(make_gpt({.vocabulary = 0}), InvalidArgument);
  EXPECT_THROW(make_gpt({.num_layers = 0}), InvalidArgument);
}

TEST(Mlp, IsAChainOfLinearLayersWithGeluBetween) {
  Model const model = make_mlp({{6, 8, 8, 8, 2}});
  auto const x = at::randn({5, 6});

  EXPECT_EQ(model.layer_names(), (std::vector<std::string>{"linear0", "linear1", "linear2", "linear3"}));
  EXPECT_EQ(model.layer_kind(1), model.layer_kind(2));
  EXPECT_NE(model.layer_kind(0), model.layer_kind(1));
  EXPECT_EQ(num_parameters(model), 6 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 2 + 2);
  at::Tensor expected = x;
  for (int layer = 0; layer < 4; ++layer) {
    auto const parameters = model.build(layer, 1)->parameters();
    expected = at::linear(expected, parameters.at(0).tensor, parameters.at(1).tensor);
    if (layer < 3) expected = at::gelu(expected);
  }
  EXPECT_TRUE(at::equal(run(model, {x}).at(0), expected));
  EXPECT_EQ(loss_only(model.loss(), {x}, at::zeros_like(x)).weight, 30.0);
}

TEST(Mlp, RefusesWidthsThatAreNone) {
  EXPECT_THROW(make_mlp({{4}}), InvalidArgument);
  EXPECT_THROW(make_mlp({{4, 0, 2}}), InvalidArgument);
}

}  // namespace
}  // namespace ballast
