// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/plan/explain.hpp"
#include "chosen_plan.hpp"
#include "job.hpp"
#include "train_loop.hpp"
#include "verb.hpp"

#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ballast {
namespace {

constexpr int kStartMeAgain = 75;  // EX_TEMPFAIL: schedulers requeue on it

/// Continues as the settings say. Collective over the job.
void resume(Environment& environment, RunConfig const& config, Trainer& trainer) {
  if (config.resume == "never") {
    collectively(environment.world(), [&] {
      if (environment.rank() == 0 && find_checkpoint(config.checkpoint_directory)) {
        throw InvalidArgument(fmt::format(
            "{} holds checkpoints, which a new run would mix with its own: name another folder, or --resume auto",
            config.checkpoint_directory.string()));
      }
    });
    return;
  }
  bool const is_named = config.resume != "auto";
  std::filesystem::path const directory = is_named ? std::filesystem::path(config.resume) : config.checkpoint_directory;
  if (trainer.resume(directory)) {
    log(LogLevel::info, fmt::format("resumed after step {} from {}", trainer.num_steps(), directory.string()));
  } else if (is_named) {
    throw InvalidArgument(fmt::format("there is no checkpoint in {}", directory.string()));
  }
}

class Train final : public Verb {
 public:
  explicit Train(CLI::App& parent)
      : Verb(parent, "train", "Plan (or reuse the plan of the last run), train, write checkpoints"),
        arguments_(app(), true) {
    arguments_.add_short(app(), "--steps", "train.steps", "Updates in all, those before a resume included");
    arguments_.add_short(app(), "--seed", "train.seed", "Of initial parameters and data order");
    arguments_.add_short(app(), "--plan", "plan.file", "Run this plan");
    arguments_.add_short(app(), "--resume", "checkpoint.resume", "auto, never, or a folder with checkpoints");
    app().add_option("--stop-at", stop_at_, "Stop after this step with a checkpoint, exit code 75")->type_name("STEP");
  }

  int run(Environment& environment) override {
    auto settings = arguments_.settings();
    auto const config = read_run_config(settings);
    if (stop_at_ && *stop_at_ < 1) throw InvalidArgument("--stop-at: expected a step >= 1");
    if (arguments_.shows_only()) {
      print(environment, settings.origins().dump(2) + "\n", settings.toml());
      return 0;
    }
    StopSignals const signals;  // from here on: a signal while planning means one step and a checkpoint
    start_run(environment, settings, config);
    auto const model = make_model(config);
    RunData data;
    collectively(environment.world(), [&] {
      data.training = make_training_data(config);
      data.validation = make_validation_data(config);
    });
    make_directory(environment, config.checkpoint_directory);
    auto const plan = choose_plan(environment, config, model, *data.training, NewPlan::keep);
    auto explanation = explain(plan);
    explanation.pop_back();  // the log ends the line itself
    log(LogLevel::info, explanation);

    auto const& topology = environment.topology();
    TrainerOptions options;
    options.seed = config.seed;
    options.device = environment.device();
    options.dilation = topology.simulated ? topology.dilation : 0.0;
    Trainer trainer(model, plan, config.optimizer, environment.world(), options);
    resume(environment, config, trainer);

    auto const outcome =
        run_training(environment, config, trainer, data, {signals, stop_at_}, settings.values().dump());
    print(environment, to_json(outcome.report), to_table(outcome.report));
    if (!outcome.stopped_early) return 0;
    log(LogLevel::info, fmt::format("stopped after step {} of {} with a checkpoint in {}: start me again to go on",
                                    trainer.num_steps(), config.steps, config.checkpoint_directory.string()));
    return kStartMeAgain;
  }

 private:
  RunArguments arguments_;
  std::optional<std::int64_t> stop_at_;
};

}  // namespace

std::unique_ptr<Verb> make_train(CLI::App& parent) { return std::make_unique<Train>(parent); }

}  // namespace ballast
