// SPDX-License-Identifier: Apache-2.0
#include "ballast/auto_plan.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/train/trainer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace ballast {
namespace {

std::int64_t largest_micro_batch(BalanceOptions const& options) {
  if (options.micro_batches.empty()) return options.global_batch;
  return *std::max_element(options.micro_batches.begin(), options.micro_batches.end());
}

/// 1, 2, 4, .. and the largest micro-batch itself, none beyond what `sample` holds.
std::vector<std::int64_t> samples_to_measure(std::int64_t largest, Batch const& sample) {
  auto const available = sample.inputs.empty() ? 0 : sample.inputs.front().size(0);
  std::vector<std::int64_t> samples;
  for (std::int64_t count = 1; count < std::min(largest, available); count *= 2) samples.push_back(count);
  samples.push_back(std::max<std::int64_t>(1, std::min(largest, available)));
  return samples;
}

int fastest_rank(Topology const& topology) {
  auto const fastest = std::max_element(topology.devices.begin(), topology.devices.end(),
                                        [](Device const& a, Device const& b) { return a.speed < b.speed; });
  return static_cast<int>(fastest - topology.devices.begin());
}

}  // namespace

ModelProfile profile_on_ranks(Environment& environment, Model const& model, Batch const& sample,
                              ProfileOptions options) {
  auto& world = environment.world();
  auto const& topology = environment.topology();
  int const fastest = fastest_rank(topology);
  std::string text;
  options.cpu_time = options.cpu_time || topology.simulated;  // ranks share cores there
  if (world.rank() == 0) log(LogLevel::info, fmt::format("profiling {} layers", model.num_layers()));
  collectively(world, [&] { text = to_json(profile_model(model, sample, options)); });
  // All take the written form, so that all hold the same value.
  return model_profile_from_json(broadcast_text(world, std::move(text), fastest), "the measured model profile");
}

AutoPlan auto_plan(Environment& environment, Model const& model, Batch const& sample, AutoPlanOptions const& options) {
  auto& world = environment.world();
  collectively(world, [&] {
    if (options.balance.global_batch < 1) {
      throw InvalidArgument(
          fmt::format("auto_plan needs balance.global_batch, found {}", options.balance.global_batch));
    }
  });
  AutoPlan result;
  result.topology = environment.topology();
  result.collectives = measure_collectives(world, result.topology, options.measure);

  auto profile = options.profile;
  if (profile.samples.empty()) profile.samples = samples_to_measure(largest_micro_batch(options.balance), sample);
  result.model = profile_on_ranks(environment, model, sample, profile);

  auto balance_options = options.balance;
  balance_options.optimizer = kind_of(profile.optimizer);
  collectively(world,
               [&] { result.plan = balance(result.model, result.topology, result.collectives, balance_options); });
  return result;
}

}  // namespace ballast
