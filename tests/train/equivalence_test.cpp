// SPDX-License-Identifier: Apache-2.0
// Any plan trains like one process: losses and parameters after 20 steps against a plain loop, in float64.
#include "ballast/model/gpt.hpp"
#include "ballast/model/mlp.hpp"
#include "ballast/train/trainer.hpp"
#include "ballast/train/verify.hpp"
#include "plans.hpp"
#include "support/mpi_test.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <ostream>

namespace ballast::test {
namespace {

constexpr std::int64_t kNumSteps = 20;
constexpr std::uint64_t kSeed = 5;
constexpr double kTolerance = 1e-10;

/// A model with its data.
struct Task {
  Model model;
  std::unique_ptr<Dataset> data;
};

Task make_task(std::string const& name) {
  if (name == "gpt") {  // 6 layers
    return {make_gpt({.vocabulary = 61, .context = 16, .num_layers = 4, .num_heads = 4, .channels = 32}),
            make_token_dataset(61, 16, true)};
  }
  if (name == "mlp") return {make_mlp({{8, 24, 24, 16, 3}}), make_regression_dataset(500, 8, 3, 1)};  // 4 layers
  return {make_rails(), make_regression_dataset(500, 8, 3, 1)};                                       // 5 layers
}

OptimizerOptions const kAdamW = AdamW{.learning_rate = 3e-3, .weight_decay = 0.1};
OptimizerOptions const kMomentum = Sgd{.learning_rate = 1e-2, .momentum = 0.9, .weight_decay = 0.01};
OptimizerOptions const kSgd = Sgd{.learning_rate = 5e-2};

struct Case {
  std::string name;
  std::string task;
  OptimizerOptions optimizer;
  std::vector<Stage> stages;
  PlanOptions options = {};
  int num_ranks() const {
    int last = 0;
    for (auto const& stage : stages) {
      for (int rank : stage.ranks) last = std::max(last, rank);
    }
    return last + 1;
  }
};

void PrintTo(Case const& value, std::ostream* out) { *out << value.name; }

std::vector<Case> cases() {
  PlanOptions const gpipe{.schedule = ScheduleKind::gpipe};
  return {
      {"OneRank", "gpt", kAdamW, {stage(0, 6, {0})}},
      {"OneRankMomentum", "mlp", kMomentum, {stage(0, 4, {0})}},
      {"OneRankOneMicroBatch", "mlp", kSgd, {stage(0, 4, {0})}, {.num_micro_batches = 1}},
      {"OneRankRails", "rails", kAdamW, {stage(0, 5, {0}, {}, {}, {0, 2, 3})}},
      {"OneRankRecompute", "gpt", kAdamW, {stage(0, 6, {0}, {}, {}, {0, 1, 2, 3, 4, 5})}},

      {"TwoStages", "gpt", kAdamW, {stage(0, 3, {0}), stage(3, 6, {1})}},
      {"TwoStagesGpipe", "gpt", kAdamW, {stage(0, 2, {0}), stage(2, 6, {1})}, gpipe},
      {"TwoStagesReversedRanks", "mlp", kSgd, {stage(0, 1, {1}), stage(1, 4, {0})}},
      {"OneGroup", "gpt", kAdamW, {stage(0, 6, {0, 1})}},
      {"OneGroupMomentum", "mlp", kMomentum, {stage(0, 4, {1, 0}, {3, 1}, {1, 2})}},
      {"OneGroupRecompute", "gpt", kAdamW, {stage(0, 6, {0, 1}, {1, 3}, {2, 1}, {1, 2, 4})}},
      {"OneGroupBatchShareZero", "mlp", kAdamW, {stage(0, 4, {0, 1}, {4, 0}, {1, 1})}},
      {"OneGroupShardShareZero", "mlp", kAdamW, {stage(0, 4, {0, 1}, {2, 2}, {0, 1})}},
      {"RailsTwoStages", "rails", kMomentum, {stage(0, 2, {0}), stage(2, 5, {1}, {}, {}, {2, 4})}},
      {"RailsOneGroup", "rails", kAdamW, {stage(0, 5, {0, 1}, {3, 1}, {1, 2})}},

      {"TwoAndOne", "gpt", kAdamW, {stage(0, 3, {0, 1}), stage(3, 6, {2})}},
      {"OneAndTwo", "gpt", kAdamW, {stage(0, 3, {0}), stage(3, 6, {1, 2}, {3, 1})}, gpipe},
      {"ThreeStagesRails", "rails", kAdamW, {stage(0, 1, {2}), stage(1, 3, {0}), stage(3, 5, {1})}},
      {"TwoAndOneBatchShareZero", "mlp", kMomentum, {stage(0, 2, {0, 1}, {0, 4}), stage(2, 4, {2})}},

      {"TwoByTwo", "gpt", kAdamW, {stage(0, 3, {0, 1}), stage(3, 6, {2, 3})}},
      {"TwoByTwoUneven",
       "gpt",
       kAdamW,
       {stage(0, 3, {0, 1}, {3, 1}, {3, 1}), stage(3, 6, {3, 2}, {2, 2}, {1, 3}, {3, 5})},
       {.num_micro_batches = 5}},
      {"FourStages", "gpt", kAdamW, {stage(0, 2, {0}), stage(2, 3, {1}), stage(3, 4, {2}), stage(4, 6, {3})}},
      {"FourStagesGpipe",
       "gpt",
       kMomentum,
       {stage(0, 1, {3}), stage(1, 3, {1}, {}, {}, {1}), stage(3, 5, {0}), stage(5, 6, {2})},
       gpipe},
      {"FourRanksOneGroup", "gpt", kAdamW, {stage(0, 6, {0, 1, 2, 3}, {3, 0, 0, 1}, {0, 3, 1, 0})}},
      {"OneAndThree", "rails", kAdamW, {stage(0, 2, {0}, {6}), stage(2, 5, {1, 2, 3}, {1, 3, 2}, {1, 1, 2})}},
      {"RailsTwoByTwo",
       "rails",
       kMomentum,
       {stage(0, 3, {0, 2}, {1, 3}), stage(3, 5, {1, 3}, {3, 1}, {1, 0}, {3})},
       gpipe},
  };
}

ReferenceRun const& reference(Case const& value, Plan const& plan) {
  static std::map<std::string, ReferenceRun> runs;
  auto const key = value.task + to_string(plan.optimizer) + std::to_string(plan.global_batch);
  auto found = runs.find(key);
  if (found == runs.end()) {
    auto const task = make_task(value.task);
    found = runs.emplace(key, train_reference(task.model, value.optimizer, *task.data, plan.global_batch, kNumSteps,
                                              DataType::float64, kSeed))
                .first;
  }
  return found->second;
}

class Equivalence : public testing::TestWithParam<Case> {};

TEST_P(Equivalence, TrainsLikeOneProcess) {
  auto const& value = GetParam();
  // Fewer ranks have been tested on their own; once more with idle ranks beside them at four only.
  if (value.num_ranks() > world().size() || (value.num_ranks() < world().size() && world().size() < 4)) {
    GTEST_SKIP() << "needs " << value.num_ranks() << " ranks";
  }
  auto const task = make_task(value.task);
  auto const plan = make_plan(task.model, value.optimizer, value.stages, value.options);

  Trainer trainer(task.model, plan, value.optimizer, world(), {.seed = kSeed, .device = {}, .dilation = 0.0});
  std::vector<StepReport> reports;
  for (std::int64_t step = 0; step < kNumSteps; ++step) reports.push_back(trainer.step(*task.data));
  auto const parameters = trainer.gather_parameters();

  EXPECT_EQ(trainer.num_steps(), kNumSteps);
  if (world().rank() != 0) {
    EXPECT_TRUE(parameters.empty());
    return;
  }
  auto const& expected = reference(value, plan);
  for (std::size_t step = 0; step < reports.size(); ++step) {
    EXPECT_NEAR(reports[step].loss, expected.losses[step], kTolerance * std::abs(expected.losses[step]))
        << "step " << step;
  }
  EXPECT_GT(std::abs(reports.back().loss / reports.front().loss - 1.0), 1e-3);  // so that something was trained
  std::vector<WholeTensor> whole;
  for (auto const& [name, tensor] : expected.parameters) whole.push_back({name, tensor});
  EXPECT_LE(relative_difference(parameters, whole), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Plans, Equivalence, testing::ValuesIn(cases()),
                         [](auto const& info) { return info.param.name; });

TEST(EquivalentRuns, SamePlanTwiceGivesTheSameBits) {
  auto const task = make_task("gpt");
  std::vector<Stage> stages{stage(0, 6, {0})};
  if (world().size() == 2) stages = {stage(0, 6, {0, 1}, {3, 1}, {2, 1})};
  if (world().size() == 3) stages = {stage(0, 3, {0, 1}), stage(3, 6, {2})};
  if (world().size() >= 4) stages = {stage(0, 3, {0, 1}), stage(3, 6, {2, 3})};
  auto const plan = make_plan(task.model, kAdamW, stages, {.dtype = DataType::float32});

  std::vector<double> losses[2];
  std::vector<WholeTensor> parameters[2];
  for (int run : {0, 1}) {
    Trainer trainer(task.model, plan, kAdamW, world(), {.seed = kSeed, .device = {}, .dilation = 0.0});
    for (int step = 0; step < 5; ++step) losses[run].push_back(trainer.step(*task.data).loss);
    parameters[run] = trainer.gather_parameters();
  }

  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_TRUE(bit_equal(parameters[0], parameters[1]));
}

TEST(EquivalentRuns, InitialModelHasTheSameBitsUnderEveryPlan) {
  auto const task = make_task("gpt");
  auto const gathered = [&](std::vector<Stage> stages) {
    auto const plan = make_plan(task.model, kAdamW, std::move(stages), {.dtype = DataType::float32});
    return Trainer(task.model, plan, kAdamW, world(), {.seed = kSeed, .device = {}, .dilation = 0.0})
        .gather_parameters();
  };
  int const last = world().size() - 1;
  std::vector<int> all;
  for (int rank = 0; rank <= last; ++rank) all.push_back(rank);

  auto const alone = gathered({stage(0, 6, {0})});
  auto const together = gathered({stage(0, 6, all)});
  auto const in_two = last > 0 ? gathered({stage(0, 2, {last}), stage(2, 6, {0})}) : alone;

  EXPECT_EQ(alone.empty(), world().rank() != 0);
  EXPECT_TRUE(bit_equal(alone, together));
  EXPECT_TRUE(bit_equal(alone, in_two));
}

TEST(Verify, FindsAPlanEqualToTheReference) {
  auto const task = make_task("mlp");
  std::vector<Stage> stages{stage(0, 4, {0})};
  if (world().size() > 1) stages = {stage(0, 2, {1}), stage(2, 4, {0})};
  auto const plan = make_plan(task.model, kAdamW, stages, {.dtype = DataType::float32});

  auto const report = verify_plan(task.model, plan, kAdamW, *task.data, 5, kSeed, world());

  EXPECT_TRUE(report.equal);
  EXPECT_EQ(report.plan_losses.size(), 5u);
  EXPECT_EQ(report.reference_losses.size(), 5u);
  EXPECT_EQ(report.first_different_layer, "");
  EXPECT_LE(report.largest_loss_difference, 1e-10);
  EXPECT_LE(report.largest_parameter_difference, 1e-10);
}

TEST(Verify, NamesTheFirstLayerThatDiffers) {
  // A layer that computes something else whenever it sees part of a batch only, as a batch norm would.
  auto model = make_mlp({{8, 24, 24, 16, 3}});
  Model broken("broken");
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    broken.add(model.layer_name(layer), [model, layer]() -> std::unique_ptr<Layer> {
      struct Dependent : Layer {
        std::unique_ptr<Layer> inner;
        Tensors forward(Tensors const& inputs) override {
          Tensors outputs = inner->forward(inputs);
          for (auto& output : outputs) output = output * static_cast<double>(inputs[0].size(0));
          return outputs;
        }
        std::vector<NamedTensor> parameters() override { return inner->parameters(); }
      };
      auto built = model.build(layer, 3);
      if (layer != 2) return built;
      auto dependent = std::make_unique<Dependent>();
      dependent->inner = std::move(built);
      return dependent;
    });
  }
  broken.set_loss(squared_error_loss);
  auto const data = make_regression_dataset(500, 8, 3, 1);
  auto const plan = make_plan(broken, kSgd, {stage(0, 4, {0})});

  auto const report = verify_plan(broken, plan, kSgd, *data, 2, kSeed, world());

  EXPECT_FALSE(report.equal);
  EXPECT_EQ(report.first_different_layer, broken.layer_name(0));  // gradients pass through the layer to all before it
  EXPECT_GT(report.largest_loss_difference, 1e-3);
}

}  // namespace
}  // namespace ballast::test
