// SPDX-License-Identifier: Apache-2.0
// A failure of one rank inside a step is the same error on all ranks, soon. Each test fails a world of its own.
#include "ballast/base/error.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/device/device_memory.hpp"
#include "ballast/model/mlp.hpp"
#include "plans.hpp"
#include "support/mpi_test.hpp"

#include <chrono>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

namespace ballast::test {
namespace {

using Clock = std::chrono::steady_clock;

OptimizerOptions const kOptimizer = Sgd{.learning_rate = 1e-2};
constexpr double kSoon_s = 5.0;  // far below any timeout, far above what a busy machine delays

/// Where and when a layer of the model fails.
struct Fault {
  bool here = false;
  int calls = 0;  // of forward, until it fails
};

/// 3 layers of 8 channels, of which "middle" fails as `fault` says.
Model make_failing(Fault& fault, std::function<void()> fail) {
  struct Failing : Layer {
    at::Tensor weight = at::randn({8, 8}).set_requires_grad(true);
    Fault* fault = nullptr;
    std::function<void()> fail;
    Tensors forward(Tensors const& inputs) override {
      if (fault && fault->here && --fault->calls < 0) fail();
      return {at::linear(inputs[0], weight)};
    }
    std::vector<NamedTensor> parameters() override { return {{"weight", weight}}; }
  };
  Model model("failing");
  for (std::string const name : {"first", "middle", "last"}) {
    model.add(name, [name, &fault, fail]() -> std::unique_ptr<Layer> {
      auto layer = std::make_unique<Failing>();
      if (name == "middle") layer->fault = &fault;
      layer->fail = fail;
      return layer;
    });
  }
  model.set_loss(squared_error_loss);
  return model;
}

/// Two stages on two ranks; on three the second is shared, on four both.
std::vector<Stage> over_all_ranks() {
  switch (world().size()) {
    case 2:
      return {stage(0, 1, {0}), stage(1, 3, {1})};
    case 3:
      return {stage(0, 1, {0}), stage(1, 3, {1, 2})};
    default:
      return {stage(0, 1, {0, 1}), stage(1, 3, {2, 3})};
  }
}

/// What every rank heard, and how long the slowest waited.
struct Heard {
  std::vector<std::string> messages;
  double slowest_s = 0.0;
};

/// The communicator of a failed job and what trained on it are kept: MPI may use their buffers until the process ends.
std::vector<std::pair<std::unique_ptr<Communicator>, std::unique_ptr<Trainer>>>& graveyard() {
  static std::vector<std::pair<std::unique_ptr<Communicator>, std::unique_ptr<Trainer>>> kept;
  return kept;
}

template <class E>
Heard train_until_failure(Model const& model, Plan const& plan, Device const& device = {}) {
  auto& [own_world, trainer] = graveyard().emplace_back(make_mpi_world(), nullptr);
  trainer = std::make_unique<Trainer>(model, plan, kOptimizer, *own_world, TrainerOptions{.seed = 1, .device = device});
  Batch const batch{{at::ones({plan.global_batch, 8})}, at::ones({plan.global_batch, 8})};
  world().barrier();
  auto const start = Clock::now();
  auto const message = error_of<E>([&, &trainer = trainer] {
    for (int step = 0; step < 3; ++step) trainer->step(batch);
  });
  double const lasted_s = std::chrono::duration<double>(Clock::now() - start).count();
  // Going on is refused, without communication.
  EXPECT_NE(error_of<Error>([&, &trainer = trainer] { trainer->gather_parameters(); }).find("cannot go on"),
            std::string::npos);
  return {all_gather_text(world(), message), all_reduce_value(world(), lasted_s, ReduceOperation::max)};
}

void expect_same_with(Heard const& heard, std::vector<std::string> const& parts) {
  for (auto const& message : heard.messages) EXPECT_EQ(message, heard.messages.front());
  for (auto const& part : parts)
    EXPECT_NE(heard.messages.front().find(part), std::string::npos) << heard.messages.front();
  EXPECT_LT(heard.slowest_s, kSoon_s);
}

TEST(Failure, OfALayerInTheMiddleOfAStepIsTheSameErrorOnAllRanks) {
  int const failing = world().size() - 1;
  Fault fault{world().rank() == failing, 4};
  auto const model = make_failing(fault, [] { throw std::runtime_error("the layer is tired"); });

  auto const heard = train_until_failure<Error>(model, make_plan(model, kOptimizer, over_all_ranks()));

  // Three micro-batches a step: the fifth forward is that of the second step's micro-batch 1.
  expect_same_with(
      heard, {"rank " + std::to_string(failing), "forward of layer middle", "micro-batch 1", "the layer is tired"});
}

TEST(Failure, OfLibTorchIsToldWithoutItsStackTrace) {
  int const failing = world().size() - 1;
  Fault fault{world().rank() == failing, 1};
  auto const model = make_failing(fault, [] { at::zeros({2}) + at::zeros({3}); });

  auto const heard = train_until_failure<Error>(model, make_plan(model, kOptimizer, over_all_ranks()));

  expect_same_with(heard, {"rank " + std::to_string(failing), "forward of layer middle", "size"});
  EXPECT_EQ(heard.messages.front().find("Exception raised"), std::string::npos);
}

TEST(Failure, OfDeviceMemoryOnOneRankIsADeviceErrorOnAll) {
  int const failing = world().size() - 1;
  Fault fault{world().rank() == failing, 2};
  auto const model = make_failing(fault, [] { at::empty({1 << 20}); });
  Device device;
  device.memory_bytes = world().rank() == failing ? 1 << 20 : 1 << 30;

  auto const heard = train_until_failure<DeviceError>(model, make_plan(model, kOptimizer, over_all_ranks()), device);

  expect_same_with(heard, {"rank " + std::to_string(failing), "forward of layer middle", "micro-batch 2",
                           "4.00 MiB asked for", "in use of 1.00 MiB"});
  set_device_capacity(std::int64_t{1} << 40);
}

TEST(Failure, OfShardsThatDoNotFitIsToldByTheConstructorOnAllRanks) {
  // Agreed upon without a report: this world lives on.
  auto const model = make_mlp({{8, 512, 512, 8}});
  auto const plan = make_plan(model, kOptimizer, over_all_ranks(), {.dtype = DataType::float32});
  int const failing = world().size() - 1;
  Device device;
  device.memory_bytes = world().rank() == failing ? 200'000 : 1 << 30;

  auto const message =
      error_of<DeviceError>([&] { Trainer(model, plan, kOptimizer, world(), TrainerOptions{.device = device}); });

  for (auto const& heard : all_gather_text(world(), message)) EXPECT_EQ(heard, message);
  EXPECT_NE(message.find("linear1"), std::string::npos) << message;
  EXPECT_NE(message.find("rank " + std::to_string(failing)), std::string::npos) << message;
  set_device_capacity(std::int64_t{1} << 40);
}

}  // namespace
}  // namespace ballast::test
