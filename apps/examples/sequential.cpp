// SPDX-License-Identifier: Apache-2.0
// Trains an existing torch::nn::Sequential, each child a layer:  mpirun -n 4 sequential
#include "ballast/auto_plan.hpp"
#include "ballast/model/torch_module.hpp"
#include "ballast/train/trainer.hpp"

#include <iostream>

#include <fmt/format.h>
#include <torch/nn.h>

int main(int argc, char** argv) {
  return ballast::run_main(argc, argv, [](ballast::Environment& environment) {
    torch::manual_seed(0);  // the values of `net` are those the training starts from, so all ranks need the same
    torch::nn::Sequential const net(torch::nn::Linear(8, 128), torch::nn::GELU(), torch::nn::Linear(128, 128),
                                    torch::nn::GELU(), torch::nn::Linear(128, 2));
    auto model = ballast::model_from(net);
    model.set_loss(ballast::squared_error_loss);

    auto const data = ballast::make_regression_dataset(/*size=*/4096, /*num_inputs=*/8, /*num_outputs=*/2, /*seed=*/1);
    ballast::Sgd const optimizer{.learning_rate = 0.02, .momentum = 0.9};

    ballast::AutoPlanOptions options;
    options.balance.global_batch = 64;
    options.profile.optimizer = optimizer;
    options.measure.budget_s = 0.5;
    auto const sample = data->samples(ballast::sample_indices(/*seed=*/0, /*step=*/0, 64, data->size()));
    auto const planned = ballast::auto_plan(environment, model, sample, options);

    ballast::Trainer trainer(model, planned.plan, optimizer, environment.world(), {.device = environment.device()});
    for (int step = 0; step < 200; ++step) {
      // A batch of your own would do as well: every rank passes the whole of it.
      auto const batch = data->samples(ballast::sample_indices(0, step, 64, data->size()));
      auto const report = trainer.step(batch);
      if (environment.rank() == 0 && report.step % 40 == 0)
        std::cout << fmt::format("step {} loss {:.4f}\n", report.step, report.loss);
    }
  });
}
