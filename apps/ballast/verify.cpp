// SPDX-License-Identifier: Apache-2.0
#include "ballast/train/verify.hpp"

#include "ballast/base/error.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/report/text_table.hpp"
#include "chosen_plan.hpp"
#include "job.hpp"
#include "verb.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

std::string to_text(VerifyReport const& report) {
  TextTable table({"step", "one process", "plan"});
  for (std::size_t step = 0; step < report.plan_losses.size(); ++step) {
    table.add({std::to_string(step + 1), fmt::format("{:.12f}", report.reference_losses[step]),
               fmt::format("{:.12f}", report.plan_losses[step])});
  }
  auto const differences = fmt::format("largest relative difference: losses {:.1e}, parameters {:.1e}\n",
                                       report.largest_loss_difference, report.largest_parameter_difference);
  if (report.equal) return table.text() + differences + "equal: the plan trains like one process\n";
  auto const layer = report.first_different_layer.empty()
                         ? std::string("no layer differs after the first step")
                         : "the first layer that differs after the first step is " + report.first_different_layer;
  return table.text() + differences + "different: " + layer + "\n";
}

std::string to_json(VerifyReport const& report) {
  nlohmann::ordered_json const json = {{"schema", "ballast.verify/1"},
                                       {"equal", report.equal},
                                       {"reference_losses", report.reference_losses},
                                       {"plan_losses", report.plan_losses},
                                       {"largest_loss_difference", report.largest_loss_difference},
                                       {"largest_parameter_difference", report.largest_parameter_difference},
                                       {"first_different_layer", report.first_different_layer}};
  return json.dump(2) + "\n";
}

class Verify final : public Verb {
 public:
  explicit Verify(CLI::App& parent)
      : Verb(parent, "verify", "Check in float64 that the plan trains like one process"), arguments_(app(), true) {
    arguments_.add_short(app(), "--seed", "train.seed", "Of initial parameters and data order");
    arguments_.add_short(app(), "--plan", "plan.file", "Check this plan");
    app().add_option("--steps", steps_, "Steps to compare")->capture_default_str();
  }

  int run(Environment& environment) override {
    auto settings = arguments_.settings();
    auto const config = read_run_config(settings);
    if (steps_ < 1) throw InvalidArgument("--steps: expected a number >= 1");
    if (arguments_.shows_only()) {
      print(environment, settings.origins().dump(2) + "\n", settings.toml());
      return 0;
    }
    start_run(environment, settings, config);
    auto const model = make_model(config);
    std::unique_ptr<Dataset> data;
    collectively(environment.world(), [&] { data = make_training_data(config); });
    auto const plan = choose_plan(environment, config, model, *data, NewPlan::discard);
    auto const report = verify_plan(model, plan, config.optimizer, *data, steps_, config.seed, environment.world());
    print(environment, to_json(report), to_text(report));
    return report.equal ? 0 : 1;
  }

 private:
  RunArguments arguments_;
  std::int64_t steps_ = 5;
};

}  // namespace

std::unique_ptr<Verb> make_verify(CLI::App& parent) { return std::make_unique<Verify>(parent); }

}  // namespace ballast
