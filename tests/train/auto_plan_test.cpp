// SPDX-License-Identifier: Apache-2.0
#include "ballast/auto_plan.hpp"

#include "ballast/base/error.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/model/mlp.hpp"
#include "ballast/plan/validate.hpp"
#include "plans.hpp"
#include "support/mpi_test.hpp"

#include <numeric>
#include <string>

#include <ATen/ATen.h>

namespace ballast::test {
namespace {

Batch samples(Dataset const& data, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return data.samples(indices);
}

/// MPI lives already (mpi_main.cpp); the environment joins it.
Environment& environment() {
  static int argc = 1;
  static std::string name = "test";
  static char* arguments[] = {name.data(), nullptr};
  static char** argv = arguments;
  static Environment instance(argc, argv);
  return instance;
}

AutoPlanOptions quick() {
  AutoPlanOptions options;
  options.balance.global_batch = 8;
  options.profile.optimizer = Sgd{.learning_rate = 1e-2, .momentum = 0.9};
  options.profile.samples = {};
  options.profile.warm_up = 0;
  options.profile.repetitions = 1;
  options.measure.budget_s = 0.5;
  options.measure.max_bytes = 4096;
  return options;
}

TEST(AutoPlan, IsTheSameOnAllRanksAndTrains) {
  auto const model = make_mlp({{8, 64, 64, 64, 3}});
  auto const data = make_regression_dataset(100, 8, 3, 1);
  auto const options = quick();

  auto const found = auto_plan(environment(), model, samples(*data, 8), options);

  for (auto const& text :
       all_gather_text(world(), to_json(found.plan) + to_json(found.model) + to_json(found.topology))) {
    EXPECT_EQ(text, to_json(found.plan) + to_json(found.model) + to_json(found.topology));
  }
  EXPECT_TRUE(faults(found.plan, found.model, found.topology).empty());
  EXPECT_EQ(found.plan.optimizer, OptimizerKind::sgd_momentum);
  EXPECT_EQ(found.plan.predictions.ranks.size(), static_cast<std::size_t>(world().size()));
  ASSERT_EQ(found.model.layers.front().points.size(), 4u);  // 1, 2, 4, 8
  EXPECT_EQ(found.model.layers.front().points.back().samples, 8);
  Trainer trainer(model, found.plan, options.profile.optimizer, environment().world(),
                  {.seed = 0, .device = environment().device(), .dilation = 0.0});
  EXPECT_EQ(trainer.step(*data).step, 1);
}

TEST(AutoPlan, RefusesAMissingBatchAndASampleThatIsTooSmallOnAllRanks) {
  auto const model = make_mlp({{8, 64, 3}});
  auto const data = make_regression_dataset(100, 8, 3, 1);
  auto options = quick();
  options.balance.global_batch = 0;
  EXPECT_NE(error_of<InvalidArgument>([&] {
              auto_plan(environment(), model, samples(*data, 8), options);
            }).find("global_batch"),
            std::string::npos);

  ProfileOptions profile;
  profile.samples = {16};
  auto const small = samples(*data, 8);
  EXPECT_NE(error_of<InvalidArgument>([&] { profile_on_ranks(environment(), model, small, profile); }), "no error");
}

}  // namespace
}  // namespace ballast::test
