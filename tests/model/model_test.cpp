// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model.hpp"

#include "ballast/base/error.hpp"
#include "ballast/model/gpt.hpp"
#include "ballast/model/torch_module.hpp"

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace ballast {
namespace {

std::vector<at::Tensor> values(Layer& layer) {
  std::vector<at::Tensor> result;
  for (auto const& parameter : layer.parameters()) result.push_back(parameter.tensor.detach().clone());
  return result;
}

bool equal(std::vector<at::Tensor> const& a, std::vector<at::Tensor> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](at::Tensor const& x, at::Tensor const& y) { return at::equal(x, y); });
}

TEST(Model, ALayerHasTheSameBitsInWhateverOrderTheLayersAreBuilt) {
  Model const model = make_gpt({.vocabulary = 17, .context = 8, .num_layers = 3, .num_heads = 2, .channels = 8});
  std::vector<std::vector<at::Tensor>> forwards;
  for (int layer = 0; layer < model.num_layers(); ++layer) forwards.push_back(values(*model.build(layer, 5)));

  for (int layer = model.num_layers() - 1; layer >= 0; --layer) {
    at::rand({100 + layer});  // other draws from the generator in between
    EXPECT_TRUE(equal(values(*model.build(layer, 5)), forwards[layer])) << model.layer_name(layer);
  }
  EXPECT_FALSE(equal(values(*model.build(1, 5)), forwards[2])) << "equal layers start from different values";
  EXPECT_FALSE(equal(values(*model.build(1, 6)), forwards[1])) << "the seed matters";
}

TEST(Model, ParametersHaveUniqueNamesInAFixedOrder) {
  Model const model = make_gpt({.vocabulary = 17, .context = 8, .num_layers = 1, .num_heads = 2, .channels = 8});
  std::vector<std::string> names;
  for (auto const& parameter : model.build(1, 0)->parameters()) names.push_back(parameter.name);

  std::vector<std::string> const expected = {
      "norm1.weight", "norm1.bias", "qkv.weight",    "qkv.bias",    "projection.weight", "projection.bias",
      "norm2.weight", "norm2.bias", "expand.weight", "expand.bias", "contract.weight",   "contract.bias"};
  EXPECT_EQ(names, expected);
}

TEST(Model, RefusesNamesThatAreEmptyTakenOrUnfitForFiles) {
  Model model;
  auto const linear = [] { return torch::nn::Linear(1, 1); };
  model.add("in", linear);

  for (auto const* name : {"", "in", "a/b", "a b", "ä"}) EXPECT_THROW(model.add(name, linear), InvalidArgument) << name;
  EXPECT_THROW(model.add_layer("out", nullptr), InvalidArgument);
  EXPECT_THROW(model.set_loss(nullptr), InvalidArgument);
  EXPECT_EQ(model.layer_names(), std::vector<std::string>{"in"});
}

TEST(Model, AFactoryThatFailsNamesTheLayer) {
  Model model;
  model.add("broken", [] { return torch::nn::Linear(-1, 4); });
  model.add("empty", [] { return std::unique_ptr<Layer>(); });

  try {
    model.build(0, 0);
    FAIL() << "built a layer of negative width";
  } catch (Error const& error) {
    std::string const message = error.what();
    EXPECT_NE(message.find("'broken'"), message.npos) << message;
    EXPECT_EQ(message.find("Exception raised"), message.npos) << message;
  }
  EXPECT_THROW(model.build(1, 0), InvalidArgument);
}

struct TwoInputs : torch::nn::Module {
  Tensors forward(Tensors const& inputs) { return {inputs.at(0) + inputs.at(1), inputs.at(0)}; }
};
struct OneInput : torch::nn::Module {
  at::Tensor forward(at::Tensor const& input) { return 2 * input; }
};
struct OwnLayer : Layer {
  Tensors forward(Tensors const& inputs) override { return inputs; }
  std::vector<NamedTensor> parameters() override { return {}; }
};

TEST(Model, TakesHoldersModulesSharedPointersAndOwnLayers) {
  Model model;
  model.add("holder", [] { return torch::nn::Linear(3, 2); })
      .add("pointer", [] { return std::make_shared<TwoInputs>(); })
      .add("value", [] { return OneInput(); })
      .add("sequential", [] { return torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::ReLU()); })
      .add("own", [] { return std::make_unique<OwnLayer>(); });
  auto const x = at::ones({4, 3});

  EXPECT_EQ(model.build(0, 0)->forward({x}).at(0).sizes(), at::IntArrayRef({4, 2}));
  EXPECT_EQ(model.build(1, 0)->forward({x, x}).size(), 2U);
  EXPECT_TRUE(at::equal(model.build(2, 0)->forward({x}).at(0), 2 * x));
  EXPECT_EQ(model.build(3, 0)->parameters().size(), 2U);
  EXPECT_EQ(model.build(4, 0)->forward({x, x, x}).size(), 3U);
  EXPECT_THROW(model.build(2, 0)->forward({x, x}), InvalidArgument);
}

TEST(ModelFromSequential, ItsLayersAreTheChildrenWithTheirPresentValues) {
  torch::manual_seed(3);
  torch::nn::Sequential sequential(torch::nn::Linear(4, 8), torch::nn::GELU(), torch::nn::Linear(8, 8),
                                   torch::nn::Linear(8, 8), torch::nn::Linear(8, 2));
  auto const x = at::randn({5, 4});
  Model const model = model_from(sequential, "mine");
  ASSERT_EQ(model.num_layers(), 5);
  EXPECT_EQ(model.name(), "mine");

  Tensors values = {x};
  for (int layer = 0; layer < 5; ++layer) {
    auto const built = model.build(layer, 99);
    values = built->forward(values);
    for (auto const& parameter : built->parameters()) at::NoGradGuard(), parameter.tensor.detach().zero_();  // a clone
  }
  EXPECT_TRUE(at::equal(values.at(0), sequential->forward(x)));
  EXPECT_GT(values.at(0).abs().sum().item<double>(), 0.0);

  EXPECT_EQ(model.layer_kind(2), model.layer_kind(3));
  EXPECT_NE(model.layer_kind(2), model.layer_kind(4));
  EXPECT_NE(model.layer_kind(0), model.layer_kind(2));
}

}  // namespace
}  // namespace ballast
