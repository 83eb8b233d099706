// SPDX-License-Identifier: Apache-2.0
#include "chosen_plan.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"
#include "ballast/base/units.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/plan/validate.hpp"
#include "job.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace ballast {
namespace {

/// Returns the model's fingerprint without measuring: rank 0 builds one layer of each kind and counts its parameters.
/// Collective over the job.
std::string identify(Environment& environment, Model const& model, DataType dtype) {
  std::string result;
  collectively(environment.world(), [&] {
    if (environment.rank() != 0) return;
    ModelProfile profile;
    profile.name = model.name();
    profile.dtype = dtype;
    std::map<std::string, std::int64_t> known;
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      auto const& kind = model.layer_kind(layer);
      LayerProfile entry{model.layer_name(layer), 0, {}};
      if (auto const found = known.find(kind); !kind.empty() && found != known.end()) {
        entry.num_parameters = found->second;
      } else {
        for (auto const& parameter : model.build(layer, 0)->parameters())
          entry.num_parameters += parameter.tensor.numel();
        if (!kind.empty()) known[kind] = entry.num_parameters;
      }
      profile.layers.push_back(std::move(entry));
    }
    result = fingerprint(profile);
  });
  return broadcast_text(environment.world(), std::move(result), 0);
}

/// Returns why the plan is not for this model and these settings; empty if it is.
std::string mismatch(Plan const& plan, RunConfig const& config, Model const& model, std::string const& identity) {
  if (plan.layers != model.layer_names() || (!plan.model.empty() && plan.model != identity)) {
    return "is of another model";
  }
  if (plan.global_batch != config.balance.global_batch) {
    return fmt::format("is for a global batch of {}, not {}", plan.global_batch, config.balance.global_batch);
  }
  if (plan.dtype != config.dtype)
    return fmt::format("is for {}, not {}", to_string(plan.dtype), to_string(config.dtype));
  if (plan.optimizer != config.balance.optimizer) {
    return fmt::format("is for {}, not {}", to_string(plan.optimizer), to_string(config.balance.optimizer));
  }
  return {};
}

/// Returns which wish of [plan] a plan that was made earlier does not meet; empty if it meets all.
std::string unmet_wish(Plan const& plan, BalanceOptions const& wish) {
  auto const allows = [](auto const& list, auto const& value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  if (!allows(wish.schedules, plan.schedule)) return "has another schedule";
  for (auto const& replica : plan.replicas) {
    if (wish.num_stages && *wish.num_stages != std::ssize(replica.stages)) return "has another number of stages";
    for (auto const& stage : replica.stages) {
      if (!allows(wish.micro_batches, stage.micro_batch())) return "has another micro-batch";
      if (wish.group_size && *wish.group_size != std::ssize(stage.ranks)) return "has groups of another size";
      if (!wish.allow_recompute && !stage.recompute.empty()) return "recomputes layers";
    }
  }
  for (auto const& rank : plan.predictions.ranks) {
    auto const& memory = rank.memory;
    if (static_cast<double>(memory.peak()) > static_cast<double>(memory.capacity) * (1 - wish.reserve)) {
      return "leaves less memory free";
    }
  }
  return {};
}

void say(std::string const& text) { log(LogLevel::info, text); }

std::optional<Plan> plan_of_last_run(Environment& environment, RunConfig const& config, Model const& model,
                                     std::string const& identity) {
  auto const path = config.checkpoint_directory / "plan.json";
  auto const text = read_if_exists(environment, path);
  if (!text) return {};
  std::string reason;
  try {
    auto plan = plan_from_json(*text, path.string());
    reason = mismatch(plan, config, model, identity);
    if (reason.empty()) reason = unmet_wish(plan, config.balance);
    if (reason.empty() && plan.topology != fingerprint(environment.topology())) reason = "is of another cluster";
    if (reason.empty()) {
      say(fmt::format("plan of the last run: {}", path.string()));
      return plan;
    }
  } catch (DataError const& error) {
    reason = fmt::format("is damaged ({})", error.what());
  }
  say(fmt::format("making a new plan: {} {}", path.string(), reason));
  return {};
}

}  // namespace

Plan choose_plan(Environment& environment, RunConfig const& config, Model const& model, Dataset const& data,
                 NewPlan new_plan) {
  auto const identity = identify(environment, model, config.dtype);
  if (!config.plan_file.empty()) {
    auto const source = config.plan_file.string();
    auto plan = plan_from_json(read_on_root(environment, config.plan_file), source);
    if (auto const reason = mismatch(plan, config, model, identity); !reason.empty()) {
      throw InvalidArgument(fmt::format("{} {}", source, reason));
    }
    require_runnable(plan, model.layer_names(), environment.size());
    if (!plan.topology.empty() && plan.topology != fingerprint(environment.topology()) && environment.rank() == 0) {
      log(LogLevel::warning, fmt::format("{} was made for another cluster: its predictions may not hold", source));
    }
    return plan;
  }
  if (auto plan = plan_of_last_run(environment, config, model, identity)) return *std::move(plan);

  auto const ranks = environment.size();
  say(fmt::format("planning: {} layers on {} rank{}, measuring links for {}", model.num_layers(), ranks,
                  ranks == 1 ? "" : "s", format_seconds(config.collectives_budget_s)));
  auto const values = auto_plan(environment, model, profiling_sample(config, data), auto_plan_options(config));
  if (new_plan == NewPlan::keep) write_values(environment, values, config.checkpoint_directory);
  return values.plan;
}

void write_values(Environment& environment, AutoPlan const& values, std::filesystem::path const& directory) {
  make_directory(environment, directory);
  write_on_root(environment, directory / "topology.json", to_json(values.topology));
  write_on_root(environment, directory / "collectives.json", to_json(values.collectives));
  write_on_root(environment, directory / "model.json", to_json(values.model));
  write_on_root(environment, directory / "plan.json", to_json(values.plan));
}

}  // namespace ballast
