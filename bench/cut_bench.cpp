// SPDX-License-Identifier: Apache-2.0
/// How long the exact cut and the whole balancer take. One process; no MPI is used.
#include "ballast/cluster/collective_profile.hpp"
#include "ballast/plan/balance.hpp"
#include "ballast/plan/cut.hpp"

#include <random>

#include <benchmark/benchmark.h>

namespace ballast {
namespace {

/// Layers of random time and memory; device memory is about 1.3 times what an even split would need. `elastic`: what
/// does not fit may be recomputed.
CutProblem random_problem(int num_layers, std::vector<int> const& counts, bool elastic) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> seconds(0.5, 1.5);
  std::uniform_int_distribution<std::int64_t> bytes(1 << 18, 1 << 20);
  CutClass base;
  for (int layer = 0; layer < num_layers; ++layer) {
    base.seconds.push_back(seconds(generator));
    base.fixed_bytes.push_back(bytes(generator));
    base.in_flight_bytes.push_back(bytes(generator) / 64);
    base.transient_bytes.push_back(bytes(generator));
    base.input_bytes.push_back(bytes(generator) / 128);
    base.begin_bytes.push_back(0);
    if (!elastic) continue;
    base.least_in_flight_bytes.push_back(base.in_flight_bytes.back() / 4);
    base.least_transient_bytes.push_back(base.transient_bytes.back());
  }
  if (elastic) base.seconds_per_byte = 1e-6;
  int num_units = 0;
  for (int const count : counts) num_units += count;
  CutProblem problem;
  problem.num_micro_batches = 64;
  for (std::size_t index = 0; index < counts.size(); ++index) {
    auto unit_class = base;
    unit_class.count = counts[index];
    unit_class.memory_bytes = std::int64_t{num_layers / num_units + 2} * (1 << 20) * (index % 2 == 0 ? 2 : 1);
    for (auto& value : unit_class.seconds) value *= index % 2 == 0 ? 1.0 : 2.0;
    problem.classes.push_back(std::move(unit_class));
  }
  return problem;
}

void run_cut(benchmark::State& state, CutProblem const& problem) {
  CutResult result;
  for (auto _ : state) {
    result = cut(problem);
    benchmark::DoNotOptimize(result);
  }
  state.counters["stages"] = static_cast<double>(result.stages.size());
  state.counters["feasible"] = result.feasible ? 1 : 0;
}

void one_class(benchmark::State& state) { run_cut(state, random_problem(1000, {64}, false)); }
void two_classes(benchmark::State& state) { run_cut(state, random_problem(1000, {128, 128}, false)); }
void two_classes_with_recompute(benchmark::State& state) { run_cut(state, random_problem(1000, {128, 128}, true)); }
void three_classes(benchmark::State& state) { run_cut(state, random_problem(1000, {64, 64, 64}, false)); }

/// 48 equal blocks between an embedding and a head, on eight devices of one or eight kinds.
void whole_plan(benchmark::State& state) {
  ModelProfile profile;
  profile.name = "bench";
  profile.update_s_per_parameter = 1e-9;
  for (int layer = 0; layer < 50; ++layer) {
    bool const is_block = layer > 0 && layer < 49;
    LayerProfile entry{"layer" + std::to_string(layer), is_block ? 800'000 : 2'000'000, {}};
    for (std::int64_t const samples : {1, 2, 4, 8}) {
      std::int64_t const activation = 131'072 * samples;
      double const seconds = (is_block ? 2e-3 : 4e-3) * static_cast<double>(samples);
      entry.points.push_back({samples, seconds, 2 * seconds, (is_block ? 16 : 4) * activation, activation,
                              20 * activation, 5 * activation, 6 * activation, activation});
    }
    profile.layers.push_back(std::move(entry));
  }
  profile.loss = profile.layers.back();
  Topology topology;
  topology.nodes.resize(2);
  for (int rank = 0; rank < 8; ++rank) {
    double const speed = state.range(0) == 1 ? 1.0 : 0.3 + 0.1 * rank;
    topology.devices.push_back(
        {rank / 4, "cpu", std::int64_t{200 + (state.range(0) == 1 ? 0 : 10 * rank)} << 20, speed});
  }
  auto const collectives = default_collective_profile(topology);
  BalanceOptions options;
  options.global_batch = 64;
  double step_s = 0;
  for (auto _ : state) step_s = balance(profile, topology, collectives, options).predictions.step_s;
  state.counters["step_s"] = step_s;
}

BENCHMARK(one_class)->Unit(benchmark::kMillisecond);
BENCHMARK(two_classes)->Unit(benchmark::kMillisecond);
BENCHMARK(two_classes_with_recompute)->Unit(benchmark::kMillisecond);
BENCHMARK(three_classes)->Unit(benchmark::kMillisecond);
BENCHMARK(whole_plan)->Arg(1)->Arg(8)->ArgName("kinds")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
