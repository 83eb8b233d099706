// SPDX-License-Identifier: Apache-2.0
// Resuming is bit-equal to never having stopped, under this plan or another.
#include "ballast/base/error.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/model/gpt.hpp"
#include "plans.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <fstream>

#include <ATen/ATen.h>

namespace ballast::test {
namespace {

OptimizerOptions const kOptimizer = AdamW{.learning_rate = 3e-3};
constexpr std::uint64_t kSeed = 11;

Model gpt() {
  return make_gpt({.vocabulary = 61, .context = 16, .num_layers = 2, .num_heads = 2, .channels = 16});
}  // 4 layers
std::unique_ptr<Dataset> tokens() { return make_token_dataset(61, 16, true); }

std::vector<Stage> over_all_ranks() {
  switch (world().size()) {
    case 1:
      return {stage(0, 4, {0})};
    case 2:
      return {stage(0, 4, {0, 1}, {3, 1}, {3, 1})};
    case 3:
      return {stage(0, 2, {0, 1}, {}, {1, 2}), stage(2, 4, {2})};
    default:
      return {stage(0, 2, {0, 1}, {3, 1}, {3, 1}), stage(2, 4, {2, 3}, {}, {0, 1})};
  }
}

std::unique_ptr<Trainer> trainer(Model const& model, std::vector<Stage> stages,
                                 OptimizerOptions const& optimizer = kOptimizer, std::uint64_t seed = kSeed,
                                 DataType dtype = DataType::float32) {
  auto const plan = make_plan(model, optimizer, std::move(stages), {.dtype = dtype});
  return std::make_unique<Trainer>(model, plan, optimizer, world(),
                                   TrainerOptions{.seed = seed, .device = {}, .dilation = 0.0});
}

TEST(Resume, IsBitEqualToNeverHavingStopped) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const data = tokens();
  auto const straight = trainer(model, over_all_ranks());
  for (int step = 0; step < 8; ++step) straight->step(*data);

  {
    auto const first = trainer(model, over_all_ranks());
    for (int step = 0; step < 5; ++step) first->step(*data);
    first->save(folder.path(), R"({"note": "kept"})");
    first->step(*data);  // saving does not disturb
  }
  auto const second = trainer(model, over_all_ranks());
  EXPECT_TRUE(second->resume(folder.path()));
  EXPECT_EQ(second->num_steps(), 5);
  std::vector<double> losses;
  for (int step = 5; step < 8; ++step) losses.push_back(second->step(*data).loss);

  EXPECT_TRUE(bit_equal(second->gather_parameters(), straight->gather_parameters()));
  EXPECT_EQ(second->step(*data).loss, straight->step(*data).loss);
}

TEST(Resume, WorksUnderAnotherPlanAndKeepsAllBits) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const data = tokens();
  auto const first = trainer(model, over_all_ranks(), kOptimizer, kSeed, DataType::float64);
  for (int step = 0; step < 3; ++step) first->step(*data);
  first->save(folder.path());

  int const last = world().size() - 1;
  auto other_stages = last == 0 ? std::vector<Stage>{stage(0, 4, {0}, {}, {}, {1, 2})}
                                : std::vector<Stage>{stage(0, 3, {last}), stage(3, 4, {0})};
  auto const second = trainer(model, other_stages, kOptimizer, kSeed, DataType::float64);
  EXPECT_TRUE(second->resume(folder.path()));

  EXPECT_TRUE(bit_equal(second->gather_parameters(), first->gather_parameters()));
  for (int step = 0; step < 5; ++step) {
    double const expected = first->step(*data).loss;
    EXPECT_NEAR(second->step(*data).loss, expected, 1e-12 * expected);
  }
  auto const parameters = second->gather_parameters();
  auto const expected = first->gather_parameters();
  EXPECT_LE(relative_difference(parameters, expected), 1e-10);  // nothing to compare but on rank 0
}

TEST(Resume, IsFalseWithoutACheckpoint) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const fresh = trainer(model, over_all_ranks());

  EXPECT_FALSE(fresh->resume(folder.path()));
  EXPECT_FALSE(fresh->resume(folder.path() / "missing"));
  EXPECT_EQ(fresh->num_steps(), 0);
}

TEST(Resume, RefusesAnotherTrainingAndSaysWhatDiffers) {
  SharedFolder const folder(world());
  auto const model = gpt();
  trainer(model, over_all_ranks())->save(folder.path());
  auto const refusal = [&](Model const& other, OptimizerOptions const& optimizer, std::uint64_t seed, DataType dtype) {
    auto const fresh = trainer(other, over_all_ranks(), optimizer, seed, dtype);
    auto const message = error_of<DataError>([&] { fresh->resume(folder.path()); });
    for (auto const& heard : all_gather_text(world(), message)) EXPECT_EQ(heard, message);
    return message;
  };
  auto const wider = make_gpt({.vocabulary = 61, .context = 16, .num_layers = 2, .num_heads = 2, .channels = 32});

  EXPECT_NE(refusal(model, kOptimizer, kSeed + 1, DataType::float32).find("seed 11 there, 12 here"), std::string::npos);
  EXPECT_NE(refusal(model, Sgd{}, kSeed, DataType::float32).find("optimizer adamw there, sgd here"), std::string::npos);
  EXPECT_NE(refusal(model, kOptimizer, kSeed, DataType::float64).find("dtype float32 there, float64 here"),
            std::string::npos);
  auto const message = refusal(wider, kOptimizer, kSeed, DataType::float32);
  EXPECT_NE(message.find("parameters/"), std::string::npos) << message;
}

TEST(Resume, FallsBackFromADamagedStep) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const data = tokens();
  auto const first = trainer(model, over_all_ranks());
  first->step(*data);
  first->save(folder.path());
  auto const expected = first->gather_parameters();
  first->step(*data);
  auto const newest = first->save(folder.path());
  if (world().rank() == 0) {
    std::fstream file(newest / "rank-0000.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    char const last = static_cast<char>(file.peek());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  world().barrier();

  auto const second = trainer(model, over_all_ranks());
  EXPECT_TRUE(second->resume(folder.path()));

  EXPECT_EQ(second->num_steps(), 1);
  EXPECT_TRUE(bit_equal(second->gather_parameters(), expected));
}

TEST(Resume, ChecksThatAllStepsAreDamagedBeforeItGivesUp) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const step = trainer(model, over_all_ranks())->save(folder.path());
  if (world().rank() == 0) std::ofstream(step / "manifest.json") << "{";
  world().barrier();

  auto const fresh = trainer(model, over_all_ranks());
  EXPECT_NE(error_of<DataError>([&] { fresh->resume(folder.path()); }).find("none of 1"), std::string::npos);
}

TEST(Save, WritesEveryTensorOnceWithConfigurationAndPlan) {
  SharedFolder const folder(world());
  auto const model = gpt();
  auto const saved = trainer(model, over_all_ranks());

  auto const step = saved->save(folder.path(), R"({"note": "kept"})");

  auto const checkpoint = read_manifest(step);
  EXPECT_TRUE(verify_checkpoint(checkpoint).empty());
  EXPECT_EQ(checkpoint.step, 0);
  auto const parameters = std::count_if(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                        [](auto const& tensor) { return tensor.name.starts_with("parameters/"); });
  auto const states = std::count_if(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                    [](auto const& tensor) { return tensor.name.starts_with("optimizer/"); });
  EXPECT_GT(parameters, 10);
  EXPECT_EQ(states, 2 * parameters);
  EXPECT_NE(checkpoint.metadata.find("kept"), std::string::npos);
  EXPECT_NE(checkpoint.metadata.find("ballast.plan/1"), std::string::npos);
  EXPECT_NE(error_of<DataError>([&] { saved->save(folder.path(), "not json"); }), "no error");
}

}  // namespace
}  // namespace ballast::test
