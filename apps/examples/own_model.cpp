// SPDX-License-Identifier: Apache-2.0
// Trains your own torch::nn modules on whatever ranks it is started on:  mpirun -n 4 own_model
#include "ballast/auto_plan.hpp"
#include "ballast/model/torch_module.hpp"
#include "ballast/plan/explain.hpp"
#include "ballast/train/trainer.hpp"

#include <iostream>

#include <fmt/format.h>
#include <torch/nn.h>

// A residual block: any module with Tensor forward(Tensor) is a layer.
struct Block : torch::nn::Module {
  explicit Block(int channels)
      : in(register_module("in", torch::nn::Linear(channels, 4 * channels))),
        out(register_module("out", torch::nn::Linear(4 * channels, channels))) {}
  torch::Tensor forward(torch::Tensor x) { return x + out(torch::gelu(in(x))); }
  torch::nn::Linear in, out;
};

int main(int argc, char** argv) {
  return ballast::run_main(argc, argv, [](ballast::Environment& environment) {
    // Layers are built only on the ranks where they are placed.
    ballast::Model model("residual");
    model.add("in", [] { return torch::nn::Linear(8, 64); });
    for (int i = 0; i < 6; ++i) {
      model.add(
          fmt::format("block{}", i), [] { return std::make_shared<Block>(64); }, "block");
    }
    model.add("head", [] { return torch::nn::Linear(64, 2); });
    model.set_loss(ballast::squared_error_loss);

    auto const data = ballast::make_regression_dataset(/*size=*/4096, /*num_inputs=*/8, /*num_outputs=*/2, /*seed=*/1);
    ballast::AdamW const optimizer{.learning_rate = 1e-2};

    // Discover, measure, profile, balance.
    ballast::AutoPlanOptions options;
    options.balance.global_batch = 64;
    options.profile.optimizer = optimizer;
    options.measure.budget_s = 0.5;
    auto const sample = data->samples(ballast::sample_indices(/*seed=*/0, /*step=*/0, 64, data->size()));
    auto const planned = ballast::auto_plan(environment, model, sample, options);
    if (environment.rank() == 0) std::cout << ballast::explain(planned.plan) << "\n";

    // Train: the same losses on any number of ranks.
    ballast::TrainerOptions training{.seed = 0, .device = environment.device()};
    if (planned.topology.simulated) training.dilation = planned.topology.dilation;
    ballast::Trainer trainer(model, planned.plan, optimizer, environment.world(), training);
    for (int step = 0; step < 200; ++step) {
      auto const report = trainer.step(*data);
      if (environment.rank() == 0 && report.step % 40 == 0)
        std::cout << fmt::format("step {} loss {:.4f}\n", report.step, report.loss);
    }
  });
}
