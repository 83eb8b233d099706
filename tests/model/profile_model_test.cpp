// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/profile_model.hpp"

#include "ballast/base/allocation.hpp"
#include "ballast/base/error.hpp"
#include "ballast/device/device_memory.hpp"
#include "ballast/model/gpt.hpp"
#include "ballast/model/island.hpp"
#include "ballast/model/mlp.hpp"
#include "ballast/model/torch_module.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace ballast {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t LayerPoint::*kBytes[] = {&LayerPoint::saved_bytes,         &LayerPoint::output_bytes,
                                                &LayerPoint::forward_peak_bytes,  &LayerPoint::forward_only_peak_bytes,
                                                &LayerPoint::backward_peak_bytes, &LayerPoint::input_gradient_bytes};

Batch token_batch(std::int64_t samples, std::int64_t context) {
  return {{at::randint(256, {samples, context}, at::kLong)}, at::randint(256, {samples, context}, at::kLong)};
}

Batch vector_batch(std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  return {{at::randn({samples, inputs})}, at::randn({samples, outputs})};
}

/// Few runs: these tests look at bytes.
ProfileOptions quick(std::vector<std::int64_t> samples, DataType dtype = DataType::float32) {
  ProfileOptions options;
  options.samples = std::move(samples);
  options.dtype = dtype;
  options.warm_up = 1;
  options.repetitions = 2;
  options.cpu_time = true;
  return options;
}

class ProfileModel : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    install_device_memory();
    torch::manual_seed(1);
  }
  void TearDown() override { set_device_capacity(std::numeric_limits<std::int64_t>::max()); }
};

TEST_F(ProfileModel, BytesOfALinearLayerAreTheClosedForm) {
  constexpr std::int64_t B = 8, I = 640, O = 320;  // every size a multiple of the quantum
  Model model;
  model.set_loss(squared_error_loss);
  model.add("first", [=] { return torch::nn::Linear(I, O); }).add("second", [=] { return torch::nn::Linear(O, I); });

  auto const profile = profile_model(model, vector_batch(B, I, I), quick({B}));

  EXPECT_EQ(profile.input_bytes_per_sample, I * 4);
  EXPECT_EQ(profile.target_bytes_per_sample, I * 4);
  auto const& first = profile.layers.at(0);
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.num_parameters, I * O + O);
  EXPECT_EQ(first.points.at(0).samples, B);
  EXPECT_EQ(first.points.at(0).saved_bytes, B * O * 4) << "the output; the input belongs to who made it";
  EXPECT_EQ(first.points.at(0).output_bytes, B * O * 4);
  EXPECT_EQ(first.points.at(0).forward_peak_bytes, B * O * 4);
  EXPECT_EQ(first.points.at(0).forward_only_peak_bytes, B * O * 4);
  EXPECT_EQ(first.points.at(0).input_gradient_bytes, 0);
  auto const& second = profile.layers.at(1).points.at(0);
  EXPECT_EQ(second.saved_bytes, B * I * 4);
  EXPECT_EQ(second.input_gradient_bytes, B * O * 4);
  // In backward gradients of weight and bias exist beside the buffer that they are added to; the outputs are gone by
  // then.
  EXPECT_EQ(second.backward_peak_bytes, (O * I + I) * 4 + B * O * 4 - B * I * 4);
  auto const& loss = profile.loss.points.at(0);
  EXPECT_EQ(loss.input_gradient_bytes, B * I * 4);
  EXPECT_GE(loss.forward_peak_bytes, loss.input_gradient_bytes);
  EXPECT_EQ(loss.saved_bytes, 0);
  EXPECT_EQ(profile.loss.num_parameters, 0);
}

TEST_F(ProfileModel, BytesAreTheSameInEveryRun) {
  Model const model = make_gpt({.context = 32, .num_layers = 2, .num_heads = 2, .channels = 32});
  auto const sample = token_batch(4, 32);

  auto const one = profile_model(model, sample, quick({1, 4}));
  trim_device_memory();
  auto const two = profile_model(model, sample, quick({1, 4}));

  ASSERT_EQ(one.layers.size(), 4U);
  EXPECT_EQ(one.baseline_bytes, two.baseline_bytes);
  for (std::size_t layer = 0; layer < one.layers.size(); ++layer) {
    for (std::size_t point = 0; point < 2; ++point) {
      for (auto const bytes : kBytes) {
        EXPECT_EQ(one.layers[layer].points[point].*bytes, two.layers[layer].points[point].*bytes)
            << one.layers[layer].name;
      }
      EXPECT_EQ(one.loss.points[point].forward_peak_bytes, two.loss.points[point].forward_peak_bytes);
    }
  }
}

TEST_F(ProfileModel, LayersOfOneKindAreMeasuredOnceTheFirstLayerAlone) {
  auto const built = std::make_shared<int>(0);
  auto const block = [built] {
    ++*built;
    return torch::nn::Linear(8, 8);
  };
  Model model;
  model.set_loss(squared_error_loss);
  for (auto const* name : {"a", "b", "c", "d"}) model.add(name, block, "block");

  auto const profile = profile_model(model, vector_batch(4, 8, 8), quick({2, 4}));

  EXPECT_EQ(*built, 2);
  EXPECT_EQ(profile.layers.at(3).name, "d");
  EXPECT_EQ(profile.layers[1].points, profile.layers[3].points);
  EXPECT_EQ(profile.layers[0].points[0].input_gradient_bytes, 0);
  EXPECT_EQ(profile.layers[1].points[0].input_gradient_bytes, 512);
}

TEST_F(ProfileModel, ALayerIsFedByTheOneBeforeAlsoWhenThatWasMeasuredEarlier) {
  Model model;
  model.set_loss(squared_error_loss);
  auto const widen = [] { return torch::nn::Linear(8, 16); };
  auto const narrow = [] { return torch::nn::Linear(16, 8); };
  model.add("in", [] { return torch::nn::Linear(3, 8); });
  model.add("a0", widen, "widen").add("b0", narrow, "narrow").add("a1", widen, "widen");
  model.add("out", [] { return torch::nn::Linear(16, 2); });

  auto const profile = profile_model(model, vector_batch(2, 3, 2), quick({2}));

  EXPECT_EQ(profile.layers.at(4).num_parameters, 16 * 2 + 2);
}

/// The largest sum of bytes that a rank with this layer alone would see, optimizer state of AdamW included.
std::int64_t total(LayerProfile const& layer, LayerPoint const& point) {
  auto const backward = point.saved_bytes + point.output_bytes + point.backward_peak_bytes;
  return 4 * round_allocation(layer.num_parameters * 4) + std::max(point.forward_peak_bytes, backward);
}

void expect_bound_between_points(Model const& model, Batch const& sample) {
  std::vector<std::int64_t> const unmeasured = {3, 5, 6, 7};
  auto const measured = profile_model(model, sample, quick({1, 2, 4, 8}));
  auto const truth = profile_model(model, sample, quick(unmeasured));
  for (std::size_t layer = 0; layer < measured.layers.size(); ++layer) {
    for (std::size_t point = 0; point < unmeasured.size(); ++point) {
      auto const bound = measured.layers[layer].at(unmeasured[point]);
      auto const& exact = truth.layers[layer].points[point];
      for (auto const bytes : kBytes) EXPECT_GE(bound.*bytes, exact.*bytes) << measured.layers[layer].name;
      EXPECT_LE(total(measured.layers[layer], bound), 1.1 * total(truth.layers[layer], exact))
          << measured.layers[layer].name;
    }
  }
  for (std::size_t point = 0; point < unmeasured.size(); ++point) {
    auto const bound = measured.loss.at(unmeasured[point]);
    EXPECT_GE(bound.forward_peak_bytes, truth.loss.points[point].forward_peak_bytes);
    EXPECT_GE(bound.input_gradient_bytes, truth.loss.points[point].input_gradient_bytes);
  }
}

TEST_F(ProfileModel, UnmeasuredSampleCountsOfTheGptAreTightUpperBounds) {
  expect_bound_between_points(make_gpt({.num_layers = 2}), token_batch(8, 128));
}

TEST_F(ProfileModel, UnmeasuredSampleCountsOfTheMlpAreTightUpperBounds) {
  expect_bound_between_points(make_mlp({{100, 300, 300, 130}}), vector_batch(8, 100, 130));
}

TEST_F(ProfileModel, APassThroughTheIslandsPeaksWhereTheProfileSays) {
  constexpr std::int64_t B = 4, T = 64;
  Model const model = make_gpt({.context = T, .num_layers = 2, .num_heads = 2, .channels = 64});
  auto const sample = token_batch(B, T);
  auto const profile = profile_model(model, sample, quick({B}));
  std::vector<std::unique_ptr<Layer>> layers;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    layers.push_back(model.build(layer, 0));
    for (auto const& parameter : layers.back()->parameters()) {
      parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor.detach());
    }
  }
  std::int64_t held = 0;
  std::int64_t predicted = 0;
  auto const rise = [&](std::int64_t bytes) { predicted = std::max(predicted, held + bytes); };
  auto const start = device_memory().current_bytes;
  reset_device_peak();

  std::vector<Island> islands;
  Tensors values = sample.inputs;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    auto const& point = profile.layers[layer].points[0];
    rise(point.forward_peak_bytes);
    held += point.saved_bytes;
    islands.push_back(forward_island(*layers[layer], values, layer > 0));
    values = islands.back().outputs;
    EXPECT_EQ(device_memory().current_bytes - start, held) << "after the forward of layer " << layer;
  }
  rise(profile.loss.points[0].forward_peak_bytes);
  Tensors gradients = loss_and_gradient(model.loss(), values, sample.targets).output_gradients;
  values.clear();
  held += profile.loss.points[0].input_gradient_bytes;
  EXPECT_EQ(device_memory().current_bytes - start, held) << "after the loss";
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    auto const& point = profile.layers[layer].points[0];
    rise(point.backward_peak_bytes);
    held += point.input_gradient_bytes - point.saved_bytes -
            (layer + 1 < layers.size() ? profile.layers[layer + 1].points[0].input_gradient_bytes
                                       : profile.loss.points[0].input_gradient_bytes);
    gradients = backward_island(std::move(islands[layer]), std::move(gradients));
    EXPECT_EQ(device_memory().current_bytes - start, held) << "after the backward of layer " << layer;
  }

  auto const measured = device_memory().peak_bytes - start;
  EXPECT_LE(measured, predicted);
  EXPECT_GE(static_cast<double>(measured), 0.9 * static_cast<double>(predicted));
  EXPECT_EQ(held, 0);
}

TEST_F(ProfileModel, AModelLargerThanTheDeviceIsMeasuredLayerByLayer) {
  constexpr std::int64_t kWidth = 512;  // 1 MiB of weights per layer, 32 MiB in all
  Model model;
  model.set_loss(squared_error_loss);
  for (int layer = 0; layer < 32; ++layer) {
    model.add("linear" + std::to_string(layer), [=] { return torch::nn::Linear(kWidth, kWidth); });
  }
  auto const sample = vector_batch(2, kWidth, kWidth);
  set_device_capacity(device_memory().current_bytes + 5 * kMiB);

  auto const profile = profile_model(model, sample, quick({1, 2}));

  EXPECT_EQ(profile.layers.size(), 32U);
}

TEST_F(ProfileModel, ALayerTooLargeForTheDeviceIsNamed) {
  Model model;
  model.add("small", [] { return torch::nn::Linear(4, 4); });
  model.add("huge", [] { return torch::nn::Linear(4, 4 * kMiB); });
  auto const sample = vector_batch(2, 4, 4);
  set_device_capacity(device_memory().current_bytes + 5 * kMiB);

  try {
    profile_model(model, sample, quick({1}));
    FAIL() << "64 MiB fitted into 5 MiB";
  } catch (DeviceError const& error) {
    EXPECT_NE(std::string(error.what()).find("'huge'"), std::string::npos) << error.what();
  }
}

TEST_F(ProfileModel, BaselineIsWhatIsHeldBesidesTheSampleBatch) {
  Model const model = make_mlp({{64, 64}});
  auto const before = device_memory().current_bytes;
  auto const held = at::empty({3 * kMiB}, at::kByte);
  auto const sample = vector_batch(1024, 64, 64);

  EXPECT_EQ(profile_model(model, sample, quick({1})).baseline_bytes, before + 3 * kMiB);
}

TEST_F(ProfileModel, InDoublePrecisionEverythingTakesTwiceTheBytes) {
  Model model = make_mlp({{256, 512, 256}});
  model.add("norm", [] { return torch::nn::BatchNorm1d(256); });  // its buffers are converted, too
  auto const sample = vector_batch(8, 256, 256);

  auto const single = profile_model(model, sample, quick({8}));
  auto const twice = profile_model(model, sample, quick({8}, DataType::float64));

  EXPECT_EQ(twice.dtype, DataType::float64);
  EXPECT_EQ(twice.input_bytes_per_sample, 2 * single.input_bytes_per_sample);
  EXPECT_EQ(twice.target_bytes_per_sample, 2 * single.target_bytes_per_sample);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (auto const bytes : kBytes) {
      EXPECT_EQ(twice.layers[layer].points[0].*bytes, 2 * (single.layers[layer].points[0].*bytes));
    }
  }
  EXPECT_EQ(twice.layers.at(2).points[0].output_bytes, 2 * single.layers.at(2).points[0].output_bytes);
}

TEST_F(ProfileModel, TimesArePositiveAndGrowWithTheSamples) {
  auto options = quick({1, 16});
  options.repetitions = 7;
  for (bool const cpu_time : {false, true}) {
    options.cpu_time = cpu_time;
    auto const profile = profile_model(make_mlp({{512, 1024, 512}}), vector_batch(16, 512, 512), options);

    EXPECT_GT(profile.update_s_per_parameter, 0.0);
    EXPECT_LT(profile.update_s_per_parameter, 1e-6);
    for (auto const& layer : profile.layers) {
      EXPECT_GT(layer.points[0].forward_s, 0.0);
      EXPECT_GT(layer.points[0].backward_s, 0.0);
    }
    EXPECT_GT(profile.loss.points[1].forward_s, 0.0);
  }
}

TEST_F(ProfileModel, SampleCountsAreSortedAndTakenOnce) {
  auto const profile = profile_model(make_mlp({{4, 4}}), vector_batch(5, 4, 4), quick({4, 1, 4, 2}));

  std::vector<std::int64_t> samples;
  for (auto const& point : profile.layers.at(0).points) samples.push_back(point.samples);
  EXPECT_EQ(samples, (std::vector<std::int64_t>{1, 2, 4}));
}

struct Transposes : torch::nn::Module {
  at::Tensor forward(at::Tensor const& input) { return input.t().contiguous(); }
};

TEST_F(ProfileModel, RefusesWhatCannotBeMeasured) {
  Model const model = make_mlp({{4, 4}});
  auto const sample = vector_batch(4, 4, 4);

  EXPECT_THROW(profile_model(model, sample, quick({8})), InvalidArgument);
  EXPECT_THROW(profile_model(model, {{at::randn({8, 4})}, at::randn({7, 4})}, quick({8})), InvalidArgument);
  EXPECT_THROW(profile_model(model, sample, quick({})), InvalidArgument);
  EXPECT_THROW(profile_model(model, sample, quick({0, 1})), InvalidArgument);
  EXPECT_THROW(profile_model(model, {{}, {}}, quick({1})), InvalidArgument);
  EXPECT_THROW(profile_model(Model(), sample, quick({1})), InvalidArgument);
  auto options = quick({1});
  options.repetitions = 0;
  EXPECT_THROW(profile_model(model, sample, options), InvalidArgument);
  Model transposes;
  transposes.add("transpose", [] { return Transposes(); });
  EXPECT_THROW(profile_model(transposes, sample, quick({2})), InvalidArgument);
}

}  // namespace
}  // namespace ballast
