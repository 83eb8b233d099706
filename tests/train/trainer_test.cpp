// SPDX-License-Identifier: Apache-2.0
// What a trainer does besides training like one process: refusals, evaluation, dropout, reports.
#include "ballast/train/trainer.hpp"

#include "ballast/base/error.hpp"
#include "ballast/comm/checked.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/simulated.hpp"
#include "ballast/device/pace.hpp"
#include "ballast/model/mlp.hpp"
#include "plans.hpp"
#include "support/mpi_test.hpp"

#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

namespace ballast::test {
namespace {

OptimizerOptions const kOptimizer = AdamW{};

Model mlp() { return make_mlp({{8, 24, 24, 3}}); }  // 3 layers

/// Stages over all ranks: one per rank up to three, the fourth rank shares the last stage.
std::vector<Stage> over_all_ranks() {
  switch (world().size()) {
    case 1:
      return {stage(0, 3, {0})};
    case 2:
      return {stage(0, 1, {0}), stage(1, 3, {1})};
    case 3:
      return {stage(0, 1, {0}), stage(1, 3, {1, 2}, {3, 1})};
    default:
      return {stage(0, 1, {0, 1}, {1, 3}, {2, 1}), stage(1, 3, {2, 3}, {3, 1})};
  }
}

std::string refusal(Model const& model, Plan const& plan, OptimizerOptions const& optimizer = kOptimizer,
                    std::uint64_t seed = 0) {
  auto message = error_of<InvalidArgument>(
      [&] { Trainer(model, plan, optimizer, world(), {.seed = seed, .device = {}, .dilation = 0.0}); });
  for (auto const& other : all_gather_text(world(), message)) EXPECT_EQ(other, message);
  return message;
}

TEST(Trainer, RefusesAPlanForOtherLayersOnAllRanks) {
  auto const model = mlp();
  auto plan = make_plan(model, kOptimizer, over_all_ranks());
  plan.layers[1] = "another";

  EXPECT_NE(refusal(model, plan).find("another"), std::string::npos);
}

TEST(Trainer, ListsEveryFaultOfAPlan) {
  auto const model = mlp();
  auto plan = make_plan(model, kOptimizer, over_all_ranks());
  plan.replicas[0].stages.front().layers.begin = 1;
  plan.global_batch += 1;

  auto const message = refusal(model, plan);

  EXPECT_NE(message.find("[0, 1)"), std::string::npos) << message;
  EXPECT_NE(message.find("13"), std::string::npos) << message;
}

TEST(Trainer, RefusesAnotherOptimizer) {
  auto const model = mlp();
  auto const plan = make_plan(model, kOptimizer, over_all_ranks());

  auto const message = refusal(model, plan, Sgd{.momentum = 0.9});

  EXPECT_NE(message.find("adamw"), std::string::npos) << message;
  EXPECT_NE(message.find("sgd_momentum"), std::string::npos) << message;
}

TEST(Trainer, RefusesDifferentPlansOrSeedsOnTheRanks) {
  if (world().size() == 1) GTEST_SKIP() << "one rank always agrees with itself";
  auto const model = mlp();
  auto plan = make_plan(model, kOptimizer, over_all_ranks());

  EXPECT_NE(refusal(model, plan, kOptimizer, static_cast<std::uint64_t>(world().rank())).find("different"),
            std::string::npos);
  if (world().rank() == 0) plan.schedule = ScheduleKind::gpipe;
  EXPECT_NE(refusal(model, plan).find("different"), std::string::npos);
}

TEST(Trainer, RefusesAFaultOfOneRankOnAllRanks) {
  auto const model = mlp();
  auto plan = make_plan(model, kOptimizer, over_all_ranks());
  if (world().rank() == world().size() - 1) plan.num_micro_batches = 0;

  EXPECT_NE(refusal(model, plan), "no error");
}

TEST(Trainer, RefusesAGlobalBatchOfAnotherSizeAndGoesOn) {
  auto const model = mlp();
  Trainer trainer(model, make_plan(model, kOptimizer, over_all_ranks()), kOptimizer, world());
  auto const data = make_regression_dataset(100, 8, 3, 1);
  std::vector<std::int64_t> indices(12);
  std::iota(indices.begin(), indices.end(), 0);

  auto const good = data->samples(indices);
  auto const bad = data->samples(std::span(indices).subspan(1));
  // Also if only one rank passes a wrong one.
  auto const message = error_of<InvalidArgument>([&] { trainer.step(world().rank() == 0 ? bad : good); });

  EXPECT_NE(message.find("12"), std::string::npos) << message;
  EXPECT_NE(message.find("11"), std::string::npos) << message;
  EXPECT_EQ(trainer.step(good).step, 1);
}

TEST(Trainer, RefusesABatchWithoutATargetThatCounts) {
  auto model = mlp();
  model.set_loss([](Tensors const& outputs, at::Tensor const& targets) {
    auto loss = squared_error_loss(outputs, targets);
    loss.weight = targets.abs().sum().item<double>();
    return loss;
  });
  Trainer trainer(model, make_plan(model, kOptimizer, over_all_ranks()), kOptimizer, world());
  auto const before = trainer.gather_parameters();

  auto const message = error_of<InvalidArgument>([&] { trainer.step(Batch{{at::ones({12, 8})}, at::zeros({12, 3})}); });

  EXPECT_NE(message.find("weight"), std::string::npos) << message;
  EXPECT_TRUE(bit_equal(trainer.gather_parameters(), before));
  EXPECT_EQ(trainer.num_steps(), 0);
}

TEST(Trainer, TakesBatchesAsItTakesDataSets) {
  auto const model = mlp();
  auto const plan = make_plan(model, kOptimizer, over_all_ranks());
  auto const data = make_regression_dataset(100, 8, 3, 1);
  Trainer by_data(model, plan, kOptimizer, world());
  Trainer by_batch(model, plan, kOptimizer, world());

  for (std::int64_t step = 0; step < 3; ++step) {
    auto const expected = by_data.step(*data);
    auto const report = by_batch.step(data->samples(sample_indices(0, step, plan.global_batch, data->size())));
    EXPECT_EQ(report.loss, expected.loss);
    EXPECT_EQ(report.weight, 36.0);
  }

  EXPECT_TRUE(bit_equal(by_data.gather_parameters(), by_batch.gather_parameters()));
}

TEST(Trainer, ReportsTheSameStepOnAllRanks) {
  auto const model = mlp();
  Trainer trainer(model, make_plan(model, kOptimizer, over_all_ranks()), kOptimizer, world());
  auto const data = make_regression_dataset(100, 8, 3, 1);

  auto const report = trainer.step(*data);

  for (auto const loss : all_gather_value(world(), report.loss)) EXPECT_EQ(loss, report.loss);
  for (auto const seconds : all_gather_value(world(), report.step_s)) EXPECT_EQ(seconds, report.step_s);
  EXPECT_GT(report.busy_s, 0.0);
  EXPECT_GE(report.communicate_s, 0.0);
  EXPECT_LE(report.busy_s + report.communicate_s, 1.5 * report.step_s + 0.01);
  EXPECT_GT(report.peak_bytes, 0);
}

TEST(Trainer, EvaluatesToTheSameValueUnderEveryPlanAndChangesNothing) {
  auto const model = make_dropout_model();
  auto const data = make_regression_dataset(100, 8, 3, 1);
  auto const plan_of = [&](std::vector<Stage> stages) { return make_plan(model, kOptimizer, std::move(stages)); };
  Trainer alone(model, plan_of({stage(0, 3, {0})}), kOptimizer, world());
  Trainer shared(model, plan_of(over_all_ranks()), kOptimizer, world());
  auto const before = shared.gather_parameters();

  double const loss = shared.evaluate(*data, 4);

  for (auto const other : all_gather_value(world(), loss)) EXPECT_EQ(other, loss);
  EXPECT_EQ(shared.evaluate(*data, 4), loss);
  EXPECT_NEAR(alone.evaluate(*data, 4), loss, 1e-12 * loss);
  EXPECT_TRUE(bit_equal(shared.gather_parameters(), before));

  // The same samples by hand.
  Tensors tensors;
  double sum = 0.0;
  double weight = 0.0;
  at::NoGradGuard const not_recording;
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    auto const samples = data->samples(sample_indices(0x6576616c75617465, batch, 12, data->size()));
    tensors = {samples.inputs[0].to(at::kDouble)};
    for (int layer = 0; layer < 3; ++layer) {
      auto const built = model.build(layer, 0);
      built->set_training(false);
      for (auto& [name, tensor] : built->parameters()) tensor.set_data(tensor.to(at::kDouble));
      tensors = built->forward(tensors);
    }
    sum += at::mse_loss(tensors[0], samples.targets.to(at::kDouble), at::Reduction::Sum).item<double>();
    weight += 36;
  }
  EXPECT_NEAR(loss, sum / weight, 1e-12 * loss);
  EXPECT_THROW(shared.evaluate(*data, 0), InvalidArgument);
}

TEST(Trainer, TrainsAfterAnEvaluationAsWithoutOne) {
  auto const model = make_dropout_model();
  auto const data = make_regression_dataset(100, 8, 3, 1);
  auto const plan = make_plan(model, kOptimizer, over_all_ranks());
  Trainer plain(model, plan, kOptimizer, world());
  Trainer interrupted(model, plan, kOptimizer, world());

  plain.step(*data);
  interrupted.evaluate(*data, 1);
  interrupted.step(*data);
  interrupted.evaluate(*data, 2);

  EXPECT_TRUE(bit_equal(plain.gather_parameters(), interrupted.gather_parameters()));
}

TEST(Trainer, RecomputingReplaysDropout) {
  auto const model = make_dropout_model();
  auto const data = make_regression_dataset(100, 8, 3, 1);
  auto stages = over_all_ranks();
  Trainer plain(model, make_plan(model, kOptimizer, stages), kOptimizer, world());
  for (auto& each : stages) {
    for (int layer = each.layers.begin; layer < each.layers.end; ++layer) each.recompute.push_back(layer);
  }
  Trainer recomputing(model, make_plan(model, kOptimizer, stages), kOptimizer, world());

  for (int step = 0; step < 3; ++step) EXPECT_EQ(plain.step(*data).loss, recomputing.step(*data).loss);

  EXPECT_TRUE(bit_equal(plain.gather_parameters(), recomputing.gather_parameters()));
}

TEST(Trainer, DropsOtherUnitsInEveryStepAndMicroBatch) {
  // Rate 0 for the update and one constant input: losses of steps differ by what was dropped only.
  auto const model = make_dropout_model();
  OptimizerOptions const still = Sgd{.learning_rate = 0.0};
  Trainer trainer(model, make_plan(model, still, over_all_ranks(), {.num_micro_batches = 1}), still, world());
  Trainer twice(model, make_plan(model, still, over_all_ranks(), {.num_micro_batches = 2}), still, world());
  Batch const batch{{at::ones({4, 8})}, at::zeros({4, 3})};
  Batch const doubled{{at::ones({8, 8})}, at::zeros({8, 3})};

  double const first = trainer.step(batch).loss;

  EXPECT_NE(trainer.step(batch).loss, first);
  EXPECT_NE(twice.step(doubled).loss, first);
}

TEST(Trainer, RefusesElementTypesThatTheUpdateCannotTrain) {
  auto const model = mlp();

  auto const message = refusal(model, make_plan(model, kOptimizer, over_all_ranks(), {.dtype = DataType::bfloat16}));

  EXPECT_NE(message.find("bfloat16"), std::string::npos) << message;
}

TEST(Trainer, LeavesParametersAloneThatAreNotTrained) {
  Model model("frozen");
  model.add("only", []() -> std::unique_ptr<Layer> {
    struct HalfFrozen : Layer {
      at::Tensor moving = at::randn({3, 8}).set_requires_grad(true);
      at::Tensor fixed = at::randn({3, 8});
      Tensors forward(Tensors const& inputs) override { return {at::linear(inputs[0], moving + fixed)}; }
      std::vector<NamedTensor> parameters() override { return {{"moving", moving}, {"fixed", fixed}}; }
    };
    return std::make_unique<HalfFrozen>();
  });
  model.set_loss(squared_error_loss);
  std::vector<int> all(static_cast<std::size_t>(world().size()));
  std::iota(all.begin(), all.end(), 0);
  Trainer trainer(model, make_plan(model, kOptimizer, {stage(0, 1, all)}), kOptimizer, world());
  auto const before = trainer.gather_parameters();

  trainer.step(*make_regression_dataset(100, 8, 3, 1));

  auto const after = trainer.gather_parameters();
  if (world().rank() != 0) return;
  EXPECT_FALSE(at::equal(after[0].tensor, before[0].tensor));
  EXPECT_TRUE(at::equal(after[1].tensor, before[1].tensor));
}

TEST(Trainer, RefusesLayersThatShareAParameter) {
  struct Shared : Layer {
    at::Tensor weight;
    Tensors forward(Tensors const& inputs) override { return {at::linear(inputs[0], weight)}; }
    std::vector<NamedTensor> parameters() override { return {{"weight", weight}}; }
  };
  at::Tensor const weight = at::randn({8, 8}).set_requires_grad(true);
  Model model("tied");
  for (std::string const name : {"one", "two"}) {
    model.add(name, [weight]() -> std::unique_ptr<Layer> {
      auto layer = std::make_unique<Shared>();
      layer->weight = weight;
      return layer;
    });
  }

  auto const message = refusal(model, make_plan(model, kOptimizer, {stage(0, 2, {0})}));

  EXPECT_NE(message.find("layer two: parameter weight"), std::string::npos) << message;
}

TEST(Trainer, StartsTheSameCollectivesOnAllRanksAndStandsDelays) {
  auto const model = mlp();
  auto const plan = make_plan(model, kOptimizer, over_all_ranks());
  auto const data = make_regression_dataset(100, 8, 3, 1);
  Trainer plain(model, plan, kOptimizer, world());
  LinkDelays delays;
  for (int rank = 0; rank < world().size(); ++rank) delays.node_of_rank.push_back(rank / 2);
  delays.within_node = {1e-5, 1e9};
  delays.between_nodes = {1e-4, 1e8};
  auto const decorated = make_checked(make_simulated(make_mpi_world(), delays));

  Trainer trainer(model, plan, kOptimizer, *decorated);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(trainer.step(*data).loss, plain.step(*data).loss);
  EXPECT_EQ(trainer.evaluate(*data, 1), plain.evaluate(*data, 1));
  EXPECT_TRUE(bit_equal(trainer.gather_parameters(), plain.gather_parameters()));
}

TEST(Trainer, ASimulatedSlowDeviceTakesLonger) {
  auto const model = make_mlp({{64, 512, 512, 3}});
  auto const data = make_regression_dataset(100, 64, 3, 1);
  auto const plan = make_plan(model, kOptimizer, over_all_ranks());
  Trainer trainer(model, plan, kOptimizer, world(),
                  {.seed = 0, .device = {.kind = "slow", .speed = 0.5}, .dilation = 4.0});
  trainer.step(*data);

  double const cpu_before = thread_cpu_seconds();
  auto const report = trainer.step(*data);
  double const cpu_s = thread_cpu_seconds() - cpu_before;

  // 8 times the CPU time of layers, loss and update; moving messages on while it sleeps takes some, too.
  if (world().size() == 1) {
    EXPECT_GT(report.busy_s, 3.0 * cpu_s);
  }
  EXPECT_GE(report.step_s, report.busy_s);
}

TEST(Trainer, AMessageArrivesWhileItsSenderSleepsForASimulatedDevice) {
  if (world().size() != 2) GTEST_SKIP() << "needs 2 ranks";
  // Layer "slow" lasts 200 ms on its device; its output is too large to be sent without the sender's help.
  constexpr double kSlow_s = 0.2;
  static std::vector<double> starts_s;  // of this rank's forwards
  starts_s.clear();
  struct Timed : Layer {
    double cpu_s = 0.0;
    Tensors forward(Tensors const& inputs) override {
      starts_s.push_back(wall_seconds());
      for (double const end_s = thread_cpu_seconds() + cpu_s; thread_cpu_seconds() < end_s;) {
      }
      return {inputs[0] * 1.0};
    }
    std::vector<NamedTensor> parameters() override { return {}; }
  };
  Model model("timed");
  for (double const cpu_s : {0.1 * kSlow_s, 0.0}) {
    model.add(cpu_s > 0 ? "slow" : "fast", [cpu_s]() -> std::unique_ptr<Layer> {
      auto layer = std::make_unique<Timed>();
      layer->cpu_s = cpu_s;
      return layer;
    });
  }
  model.set_loss(squared_error_loss);
  Trainer trainer(model, make_plan(model, kOptimizer, {stage(0, 1, {0}), stage(1, 2, {1})}), kOptimizer, world(),
                  {.seed = 0, .device = {.kind = "simulated", .speed = 1.0}, .dilation = 10.0});
  Batch const batch{{at::ones({12, 1 << 14})}, at::zeros({12, 1 << 14})};

  trainer.step(batch);

  // Rank 0 sends micro-batch 0 and begins with micro-batch 1; rank 1 begins with micro-batch 0 long before that has ended.
  EXPECT_EQ(starts_s.size(), 3u);
  auto const second_of_slow_s = all_gather_value(world(), starts_s.at(1))[0];
  auto const first_of_fast_s = all_gather_value(world(), starts_s.at(0))[1];
  EXPECT_LT(first_of_fast_s, second_of_slow_s + 0.6 * kSlow_s);
}

}  // namespace
}  // namespace ballast::test
