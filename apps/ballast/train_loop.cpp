// SPDX-License-Identifier: Apache-2.0
#include "train_loop.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"
#include "ballast/comm/collective.hpp"
#include "metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

bool is_due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What the steps of this run measured.
struct Measurements {
  std::vector<double> step_s;
  std::vector<double> busy_s;
  double total_s = 0.0;
  double weight = 0.0;
  std::int64_t peak_bytes = 0;
  double last_loss = std::numeric_limits<double>::quiet_NaN();

  void add(StepReport const& report) {
    step_s.push_back(report.step_s);
    busy_s.push_back(report.busy_s);
    total_s += report.step_s;
    weight += report.weight;
    peak_bytes = report.peak_bytes;
    last_loss = report.loss;
  }
};

/// Without the first, which meets cold caches and empty pools.
std::vector<double> steady(std::vector<double> const& values) {
  return {values.begin() + (values.size() > 1 ? 1 : 0), values.end()};
}

/// Collective over the job.
RunReport make_report(Environment& environment, Plan const& plan, Measurements const& measured,
                      std::int64_t first_step) {
  auto& world = environment.world();
  auto const peaks = all_gather_value(world, measured.peak_bytes);
  auto const busy = all_gather_value(world, median(steady(measured.busy_s)));
  RunReport report;
  report.first_step = first_step;
  report.num_steps = std::ssize(measured.step_s);
  report.predicted_step_s = plan.predictions.step_s;
  report.measured_step_s = median(steady(measured.step_s));
  report.train_loss = measured.last_loss;
  report.validation_loss = std::numeric_limits<double>::quiet_NaN();
  report.tokens_per_s = measured.total_s > 0 ? measured.weight / measured.total_s : 0.0;
  for (int rank = 0; rank < world.size(); ++rank) {
    RankReport entry{rank, 0, peaks[rank], environment.topology().devices[rank].memory_bytes, 0.0, busy[rank]};
    if (rank < std::ssize(plan.predictions.ranks)) {
      auto const& predicted = plan.predictions.ranks[rank];
      entry.predicted_peak_bytes = predicted.memory.peak();
      entry.predicted_busy_s = predicted.times.busy_s;
    }
    report.ranks.push_back(entry);
  }
  return report;
}

}  // namespace

RunOutcome run_training(Environment& environment, RunConfig const& config, Trainer& trainer, RunData const& data,
                        StopRule const& stop, std::string const& settings) {
  auto& world = environment.world();
  auto const first_step = trainer.num_steps();
  auto saved_step = first_step;
  SaveOptions const keep{.keep = config.keep};
  Measurements measured;
  std::optional<Metrics> metrics;
  if (environment.rank() == 0) metrics.emplace(config.checkpoint_directory / "metrics.jsonl", first_step);
  Progress progress(first_step, config.steps, config.log_every);

  bool stops = false;
  while (!stops && trainer.num_steps() < config.steps) {
    auto const step = trainer.step(*data.training);
    if (!std::isfinite(step.loss)) {
      throw Error(
          ErrorKind::failed,
          fmt::format("the loss of step {} is {}: nothing is saved; lower train.learning_rate", step.step, step.loss));
    }
    measured.add(step);
    bool const is_last = step.step == config.steps;

    std::optional<double> validation_loss;
    if (data.validation && is_due(step.step, config.evaluate_every) && !is_last) {
      validation_loss = trainer.evaluate(*data.validation, config.evaluate_batches);
    }
    if (environment.rank() == 0) {
      metrics->add(step, validation_loss);
      progress.step(step);
      if (validation_loss) {
        progress.end_line();
        log(LogLevel::info, fmt::format("step {}  validation loss {:.4f}", step.step, *validation_loss));
      }
    }

    // A signal reaches ranks at different times, or only some: one wish is enough, and all stop after the same step.
    bool const wishes = stop.signals.requested() || (stop.step && step.step >= *stop.step);
    stops = all_reduce_value(world, std::int64_t{wishes}, ReduceOperation::max) != 0;

    if (is_due(step.step, config.checkpoint_every) && !stops && !is_last) {
      try {
        trainer.save(config.checkpoint_directory, settings, keep);
        saved_step = step.step;
      } catch (IoError const& error) {
        progress.end_line();
        if (environment.rank() == 0) {
          log(LogLevel::warning,
              fmt::format("no checkpoint of step {}, training goes on: {}", step.step, error.what()));
        }
      }
    }
  }
  progress.end_line();
  bool const stopped_early = trainer.num_steps() < config.steps;
  if (trainer.num_steps() > saved_step) trainer.save(config.checkpoint_directory, settings, keep);

  RunOutcome outcome{make_report(environment, trainer.plan(), measured, first_step), stopped_early};
  if (data.validation && !stopped_early) {
    outcome.report.validation_loss = trainer.evaluate(*data.validation, config.evaluate_batches);
  }
  return outcome;
}

}  // namespace ballast
