// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/plan/balance.hpp"
#include "ballast/plan/explain.hpp"
#include "chosen_plan.hpp"
#include "job.hpp"
#include "verb.hpp"

#include <CLI/CLI.hpp>

namespace ballast {
namespace {

/// With --model and --topology the plan is computed from files, on any machine; else the job measures itself.
class PlanVerb final : public Verb {
 public:
  explicit PlanVerb(CLI::App& parent)
      : Verb(parent, "plan", "Find the fastest plan that fits and explain it"), arguments_(app(), false) {
    arguments_.add_short(app(), "--batch", "train.global_batch", "Global batch");
    app().add_option("--model", model_, "Profile of the model; with it nothing is measured")->type_name("FILE");
    app().add_option("--topology", topology_, "Topology; needed with --model")->type_name("FILE");
    app().add_option("--collectives", collectives_, "Collective profile; stated defaults without")->type_name("FILE");
    app()
        .add_option("--values", values_,
                    "Write topology, collectives, model and plan to this folder, for --model and simulate")
        ->type_name("DIRECTORY");
  }

  int run(Environment& environment) override {
    if (model_.empty() != topology_.empty()) throw InvalidArgument("plan: --model and --topology need each other");
    if (model_.empty() && !collectives_.empty())
      throw InvalidArgument("plan: --collectives needs --model and --topology");
    if (!model_.empty() && !values_.empty()) throw InvalidArgument("plan: --values goes without --model");
    if (model_.empty() && !arguments_.has_file()) {
      throw InvalidArgument("plan: expected a RUN.toml, or --model, --topology and --batch");
    }
    auto settings = arguments_.settings();
    if (model_.empty()) return plan_here(environment, settings);

    auto const options = arguments_.has_file() ? read_run_config(settings).balance : read_balance_options(settings);
    if (!arguments_.has_file() && settings.origin("train.global_batch") == "default") {
      throw InvalidArgument("plan: --batch is needed without a RUN.toml");
    }
    if (show(environment, settings)) return 0;
    finish(environment, plan_from_files(options));
    return 0;
  }

 private:
  bool show(Environment& environment, Settings const& settings) const {
    if (arguments_.shows_only()) print(environment, settings.origins().dump(2) + "\n", settings.toml());
    return arguments_.shows_only();
  }

  int plan_here(Environment& environment, Settings& settings) {
    auto const config = read_run_config(settings);
    if (show(environment, settings)) return 0;
    start_run(environment, settings, config);
    std::unique_ptr<Dataset> data;
    collectively(environment.world(), [&] { data = make_training_data(config); });
    finish(environment,
           auto_plan(environment, make_model(config), profiling_sample(config, *data), auto_plan_options(config)));
    return 0;
  }

  AutoPlan plan_from_files(BalanceOptions const& options) const {
    AutoPlan values;
    values.topology = topology_from_json(read_file(topology_), topology_.string());
    values.model = model_profile_from_json(read_file(model_), model_.string());
    values.collectives = collectives_.empty()
                             ? default_collective_profile(values.topology)
                             : collective_profile_from_json(read_file(collectives_), collectives_.string());
    values.plan = balance(values.model, values.topology, values.collectives, options);
    return values;
  }

  void finish(Environment& environment, AutoPlan const& values) const {
    if (!values_.empty()) write_values(environment, values, values_);
    print(environment, to_json(values.plan), explain(values.plan));
  }

  RunArguments arguments_;
  std::filesystem::path model_;
  std::filesystem::path topology_;
  std::filesystem::path collectives_;
  std::filesystem::path values_;
};

}  // namespace

std::unique_ptr<Verb> make_plan(CLI::App& parent) { return std::make_unique<PlanVerb>(parent); }

}  // namespace ballast
