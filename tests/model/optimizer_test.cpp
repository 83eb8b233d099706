// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/optimizer.hpp"

#include "ballast/base/error.hpp"
#include "ballast/device/device_memory.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ballast {
namespace {

constexpr int kNumSteps = 20;

std::vector<OptimizerOptions> rules() {
  return {AdamW{.learning_rate = 1e-2, .weight_decay = 0.1},
          Sgd{.learning_rate = 1e-2, .momentum = 0.9, .weight_decay = 0.1},
          Sgd{.learning_rate = 1e-2, .weight_decay = 0.1}};
}

/// The same rule by LibTorch's own optimizer, weight decay by parameter groups.
std::unique_ptr<torch::optim::Optimizer> torch_optimizer(OptimizerOptions const& options, at::Tensor decayed,
                                                         at::Tensor plain) {
  using torch::optim::OptimizerParamGroup;
  std::vector<OptimizerParamGroup> groups = {OptimizerParamGroup({decayed}), OptimizerParamGroup({plain})};
  if (auto const* adamw = std::get_if<AdamW>(&options)) {
    auto defaults = torch::optim::AdamWOptions(adamw->learning_rate)
                        .betas({adamw->beta1, adamw->beta2})
                        .eps(adamw->epsilon)
                        .weight_decay(adamw->weight_decay);
    groups[0].set_options(std::make_unique<torch::optim::AdamWOptions>(defaults));
    groups[1].set_options(
        std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(defaults).weight_decay(0)));
    return std::make_unique<torch::optim::AdamW>(groups, defaults);
  }
  auto const& sgd = std::get<Sgd>(options);
  auto defaults = torch::optim::SGDOptions(sgd.learning_rate).momentum(sgd.momentum).weight_decay(sgd.weight_decay);
  groups[0].set_options(std::make_unique<torch::optim::SGDOptions>(defaults));
  groups[1].set_options(std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(defaults).weight_decay(0)));
  return std::make_unique<torch::optim::SGD>(groups, defaults);
}

ParameterShard shard_of(OptimizerOptions const& options, at::Tensor weights, bool decay) {
  ParameterShard shard{weights, at::zeros_like(weights), {}, decay};
  for (std::size_t state = 0; state < state_names(options).size(); ++state)
    shard.states.push_back(at::zeros_like(weights));
  return shard;
}

ParameterShard part_of(ParameterShard const& whole, std::int64_t begin, std::int64_t end) {
  ParameterShard part{whole.weights.slice(0, begin, end), whole.gradients.slice(0, begin, end), {}, whole.decay};
  for (auto const& state : whole.states) part.states.push_back(state.slice(0, begin, end));
  return part;
}

double largest_relative_difference(at::Tensor const& a, at::Tensor const& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

TEST(Optimizer, AgreesWithLibTorchsOwnOverTwentySteps) {
  for (auto const dtype : {at::kFloat, at::kDouble}) {
    for (auto const& rule : rules()) {
      torch::manual_seed(4);
      auto const decayed = at::randn({37, 11}, dtype);
      auto const plain = at::randn({53}, dtype);
      auto reference_decayed = decayed.clone().requires_grad_();
      auto reference_plain = plain.clone().requires_grad_();
      auto const reference = torch_optimizer(rule, reference_decayed, reference_plain);
      std::vector<ParameterShard> shards = {shard_of(rule, decayed.view({-1}), true), shard_of(rule, plain, false)};

      for (int step = 1; step <= kNumSteps; ++step) {
        reference_decayed.mutable_grad() = at::randn({37, 11}, dtype);
        reference_plain.mutable_grad() = at::randn({53}, dtype);
        shards[0].gradients.copy_(reference_decayed.grad().view({-1}));
        shards[1].gradients.copy_(reference_plain.grad());
        reference->step();
        apply_update(rule, shards, step);
      }

      double const tolerance = dtype == at::kDouble ? 1e-14 : 2e-6;
      EXPECT_LT(largest_relative_difference(decayed, reference_decayed.detach()), tolerance) << "rule " << rule.index();
      EXPECT_LT(largest_relative_difference(plain, reference_plain.detach()), tolerance) << "rule " << rule.index();
    }
  }
}

TEST(Optimizer, ShardsOfAnyCutGiveTheBitsOfTheWhole) {
  constexpr std::int64_t kSize = 1003;
  for (auto const dtype : {at::kFloat, at::kDouble}) {
    for (auto const& rule : rules()) {
      torch::manual_seed(5);
      auto const initial = at::randn({kSize}, dtype);
      std::vector<at::Tensor> gradients;
      for (int step = 0; step < kNumSteps; ++step) gradients.push_back(at::randn({kSize}, dtype));
      auto const train = [&](std::vector<std::int64_t> const& cuts) {
        ParameterShard const whole = shard_of(rule, initial.clone(), true);
        std::vector<ParameterShard> shards;
        for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut)
          shards.push_back(part_of(whole, cuts[cut], cuts[cut + 1]));
        for (int step = 1; step <= kNumSteps; ++step) {
          whole.gradients.copy_(gradients[step - 1]);
          apply_update(rule, shards, step);
        }
        return whole.weights;
      };
      auto const expected = train({0, kSize});

      for (std::int64_t first = 1; first <= 40; ++first) {
        EXPECT_TRUE(at::equal(train({0, first, 3 * first + 1, kSize}), expected))
            << "rule " << rule.index() << ", cut " << first;
      }
    }
  }
}

TEST(Optimizer, EmptyShardsAreSkippedAndNothingIsAllocated) {
  install_device_memory();
  for (auto const& rule : rules()) {
    std::vector<ParameterShard> shards = {shard_of(rule, at::ones({0}), true), shard_of(rule, at::ones({1000}), true)};
    auto const before = device_memory().num_allocations;

    apply_update(rule, shards, 1);

    EXPECT_EQ(device_memory().num_allocations, before);
  }
}

TEST(Optimizer, KnowsItsStates) {
  EXPECT_EQ(state_names(AdamW{}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_names(Sgd{.momentum = 0.9}), std::vector<std::string>{"momentum"});
  EXPECT_TRUE(state_names(Sgd{}).empty());
}

TEST(Optimizer, RefusesAStepBeforeTheFirstAndMissingStates) {
  std::vector<ParameterShard> shards = {shard_of(Sgd{}, at::ones({4}), true)};

  EXPECT_THROW(apply_update(Sgd{}, shards, 0), InvalidArgument);
  EXPECT_THROW(apply_update(AdamW{}, shards, 1), InvalidArgument);
}

}  // namespace
}  // namespace ballast
