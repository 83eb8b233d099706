// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/island.hpp"

#include "ballast/base/error.hpp"
#include "ballast/device/device_memory.hpp"
#include "ballast/device/tensor_types.hpp"
#include "ballast/model/gpt.hpp"
#include "ballast/model/torch_module.hpp"

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace ballast {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class IslandTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    install_device_memory();
    torch::manual_seed(1);
  }
  void TearDown() override { set_device_capacity(std::numeric_limits<std::int64_t>::max()); }
};

template <class Module>
std::unique_ptr<Layer> as_layer(Module module) {
  return LayerAdapter<Module>::adapt(std::move(module));
}

void preset_gradients(Layer& layer) {
  for (auto const& parameter : layer.parameters()) {
    parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor.detach());
  }
}

TEST_F(IslandTest, ChainedIslandsGiveTheGradientsOfOneGraphBitForBit) {
  Model const model = make_gpt({.vocabulary = 31, .context = 16, .num_layers = 2, .num_heads = 2, .channels = 32});
  auto const tokens = at::randint(31, {3, 16}, at::kLong);
  auto const targets = at::randint(31, {3, 16}, at::kLong);
  std::vector<std::unique_ptr<Layer>> plain;
  std::vector<std::unique_ptr<Layer>> islands;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    plain.push_back(model.build(layer, 7));
    islands.push_back(model.build(layer, 7));
    preset_gradients(*islands.back());
  }
  Tensors values = {tokens};
  for (auto const& layer : plain) values = layer->forward(values);
  Loss const expected = cross_entropy_loss(values, targets);
  expected.sum.backward();

  std::vector<Island> recorded;
  values = {tokens};
  for (auto const& layer : islands) {
    recorded.push_back(forward_island(*layer, values, /*inputs_need_gradient=*/!recorded.empty()));
    values = recorded.back().outputs;
  }
  LossGradient const loss = loss_and_gradient(model.loss(), values, targets);
  values.clear();
  Tensors gradients = loss.output_gradients;
  for (auto island = recorded.rbegin(); island != recorded.rend(); ++island) {
    gradients = backward_island(std::move(*island), std::move(gradients));
  }

  EXPECT_EQ(loss.sum, expected.sum.item<double>());
  ASSERT_EQ(gradients.size(), 1U);
  EXPECT_FALSE(gradients[0].defined()) << "tokens have no gradient";
  for (std::size_t layer = 0; layer < plain.size(); ++layer) {
    auto const a = plain[layer]->parameters();
    auto const b = islands[layer]->parameters();
    for (std::size_t parameter = 0; parameter < a.size(); ++parameter) {
      EXPECT_TRUE(at::equal(a[parameter].tensor.grad(), b[parameter].tensor.grad())) << a[parameter].name;
    }
  }
}

TEST_F(IslandTest, BackwardAccumulatesIntoThePresetGradientBuffer) {
  auto const layer = as_layer(torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
  auto const weight = layer->parameters().at(0).tensor;
  auto const buffer = at::full({6}, 10.0);
  weight.mutable_grad() = buffer.view({2, 3});

  for (int round = 0; round < 2; ++round) {
    auto island = forward_island(*layer, {at::ones({1, 3})}, true);
    backward_island(std::move(island), {at::ones({1, 2})});
  }

  EXPECT_TRUE(at::equal(buffer, at::full({6}, 12.0)));
  EXPECT_EQ(weight.grad().data_ptr(), buffer.data_ptr());
}

struct IgnoresAnInput : torch::nn::Module {
  Tensors forward(Tensors const& inputs) {
    return {2 * inputs.at(0), inputs.at(2), inputs.at(0) * inputs.at(2).to(at::kFloat)};
  }
};

TEST_F(IslandTest, IgnoredInputsIntegersAndUndefinedOutputGradientsAreSkipped) {
  auto const layer = as_layer(std::make_shared<IgnoresAnInput>());
  Tensors const inputs = {at::ones({2}), at::ones({2}), at::full({2}, 5, at::kLong)};

  auto island = forward_island(*layer, inputs, true);
  auto const gradients = backward_island(std::move(island), {at::ones({2}), {}, {}});

  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_TRUE(at::equal(gradients[0], at::full({2}, 2.0)));
  EXPECT_FALSE(gradients[1].defined());
  EXPECT_FALSE(gradients[2].defined());

  auto const none = backward_island(forward_island(*layer, inputs, true), {{}, {}, {}});
  EXPECT_FALSE(none[0].defined());
  auto const not_needed = backward_island(forward_island(*layer, inputs, false), {at::ones({2}), {}, at::ones({2})});
  EXPECT_FALSE(not_needed[0].defined());
}

struct ReturnsItsInput : torch::nn::Module {
  at::Tensor forward(at::Tensor const& input) { return input; }
};

TEST_F(IslandTest, ALayerMayReturnItsInput) {
  auto const layer = as_layer(std::make_shared<ReturnsItsInput>());
  auto const x = at::ones({3});

  auto const gradients = backward_island(forward_island(*layer, {x}, true), {at::full({3}, 4.0)});

  EXPECT_TRUE(at::equal(gradients[0], at::full({3}, 4.0)));
  EXPECT_FALSE(x.requires_grad());
  EXPECT_EQ(forward_only(*layer, {x})[0].data_ptr(), x.data_ptr());
}

TEST_F(IslandTest, ForwardOnlyRecordsNothingAndGivesTheSameOutputs) {
  auto const layer =
      as_layer(torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::GELU(), torch::nn::Linear(8, 8)));
  auto const x = at::randn({4, 8});

  auto const before = device_memory().current_bytes;
  auto const outputs = forward_only(*layer, {x});

  EXPECT_FALSE(outputs[0].requires_grad());
  EXPECT_EQ(device_memory().current_bytes - before, 512) << "only the output is held";
  EXPECT_TRUE(at::equal(outputs[0], forward_island(*layer, {x}, true).outputs[0].detach()));
}

TEST_F(IslandTest, WorksWhereTheCallerHasSwitchedRecordingOff) {
  at::NoGradGuard const not_recording;
  auto const layer = as_layer(torch::nn::Linear(2, 2));
  preset_gradients(*layer);

  auto const gradients = backward_island(forward_island(*layer, {at::ones({1, 2})}, true), {at::ones({1, 2})});

  EXPECT_TRUE(gradients[0].defined());
  EXPECT_GT(layer->parameters()[0].tensor.grad().sum().item<double>(), 0.0);
}

/// y = 2 x: saves nothing, so the output and its gradient can go as soon as they are not needed.
struct Doubles : torch::nn::Module {
  at::Tensor forward(at::Tensor const& input) { return ((input * 2.0) * 2.0) * 2.0; }
};

TEST_F(IslandTest, BackwardHoldsNeitherOutputsNorTheirGradientsLongerThanNeeded) {
  auto const layer = as_layer(std::make_shared<Doubles>());
  auto const x = at::ones({kMiB});  // 4 MiB
  auto const start = device_memory().current_bytes;
  auto island = forward_island(*layer, {x}, true);
  Tensors gradients = {at::ones({kMiB})};
  EXPECT_EQ(device_memory().current_bytes - start, 8 * kMiB);
  reset_device_peak();

  gradients = backward_island(std::move(island), std::move(gradients));

  // The output (4 MiB) goes at the start; then at most two gradients live at a time, besides the scalar 2.0.
  EXPECT_LE(device_memory().peak_bytes - start, 8 * kMiB + 1024);
  EXPECT_EQ(device_memory().current_bytes - start, 4 * kMiB);
  EXPECT_TRUE(at::equal(gradients[0], at::full({kMiB}, 8.0)));
}

TEST_F(IslandTest, OutOfMemoryInBackwardIsOneDeviceErrorAndLeavesNothingBehind) {
  auto const layer =
      as_layer(torch::nn::Sequential(torch::nn::Linear(256, 4096), torch::nn::GELU(), torch::nn::Linear(4096, 16)));
  preset_gradients(*layer);
  auto const x = at::ones({256, 256});
  auto const start = device_memory().current_bytes;
  {
    auto island = forward_island(*layer, {x}, true);
    Tensors gradients = {at::ones({256, 16})};
    set_device_capacity(device_memory().current_bytes + 1 * kMiB);

    EXPECT_THROW(translate_torch_errors("backward of layer 'wide'",
                                        [&] { backward_island(std::move(island), std::move(gradients)); }),
                 DeviceError);
  }
  EXPECT_EQ(device_memory().current_bytes, start);
  set_device_capacity(std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(backward_island(forward_island(*layer, {x}, true), {at::ones({256, 16})})[0].defined());
}

TEST_F(IslandTest, TheNumberOfOutputGradientsMustBeThatOfTheOutputs) {
  auto const layer = as_layer(torch::nn::Linear(2, 2));

  EXPECT_THROW(backward_island(forward_island(*layer, {at::ones({1, 2})}, true), {}), Error);
}

}  // namespace
}  // namespace ballast
