// SPDX-License-Identifier: Apache-2.0
#include "unit_costs.hpp"

#include "batch_shares.hpp"
#include "layer_load.hpp"
#include "merge_classes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ballast::detail {
namespace {

constexpr double kMaxPositions = 50'000;

/// Collectives of one layer over a group; 0 for a group of one rank.
struct LayerLinks {
  double gather = 0.0;       ///< seconds
  double reduce = 0.0;       ///< seconds
  double num_gathers = 0.0;  ///< per micro-batch; the least over all stages that the layer could be in
};

LayerLinks links_of(SearchInput const& input, UnitClass const& unit_class, Candidate const& candidate, int layer) {
  auto const num_ranks = static_cast<int>(unit_class.devices.size());
  LayerLinks result;
  if (num_ranks == 1) return result;
  auto const& profile = input.profile;
  auto const bytes = profile.layers[static_cast<std::size_t>(layer)].num_parameters * size_of(profile.dtype);
  result.gather = input.links.seconds(Operation::all_gather, unit_class.level, num_ranks, bytes);
  result.reduce = input.links.seconds(Operation::reduce_scatter, unit_class.level, num_ranks, bytes);

  // `step_actions` leaves out gathers of the first and the last layer of the model.
  int const last = input.layers.num_layers() - 1;
  double const once = 1 / static_cast<double>(candidate.num_micro_batches);
  bool const in_turns = candidate.schedule == ScheduleKind::one_f_one_b;
  if (last == 0) {
    result.num_gathers = 0;
  } else if (layer == last) {
    result.num_gathers = in_turns ? 1 : 2 - once;
  } else if (layer == 0 && in_turns) {
    result.num_gathers = 1 + once;
  } else {
    result.num_gathers = 2;
  }
  return result;
}

/// Forward, backward and collectives of one micro-batch of a layer.
double micro_batch_seconds(UnitLoad const& load, std::size_t layer, LayerLinks const& links) {
  auto const& self = load.layers[layer];
  bool const is_last = layer + 1 == load.layers.size();
  return self.forward_s + self.backward_s + (is_last ? load.loss.forward_s : 0.0) + links.reduce +
         links.num_gathers * links.gather;
}

bool is_plan(CostKind kind) { return kind == CostKind::planned || kind == CostKind::quick_plan; }

/// Sums of bytes of one layer over the ranks of a group.
struct LayerMemory {
  std::int64_t kept = 0;       ///< per micro-batch in flight
  std::int64_t transient = 0;  ///< beyond what is kept, while the layer runs forward, backward or (the last) its loss
};

LayerMemory memory_of(UnitLoad const& load, std::size_t layer, std::int64_t gathered, ScheduleKind schedule,
                      bool recompute) {
  auto const& self = load.layers[layer];
  bool const is_last = layer + 1 == load.layers.size();
  auto const output_gradient = is_last ? load.loss.input_gradient : load.layers[layer + 1].input_gradient;
  LayerMemory result;
  result.kept = recompute ? self.output : self.saved;
  auto const forward = gathered + (recompute ? self.forward_only_peak : self.forward_peak) - result.kept;
  auto const rise = recompute ? std::max(self.forward_peak, self.saved + self.backward_peak) : self.backward_peak;
  result.transient = std::max({std::int64_t{0}, forward, 2 * gathered + output_gradient + rise});
  if (is_last) result.transient = std::max(result.transient, gathered + load.target + load.loss.forward_peak);
  if (is_last && schedule == ScheduleKind::gpipe) {  // all losses are computed before the first backward
    result.kept += output_gradient;
    result.transient = std::max<std::int64_t>(0, result.transient - output_gradient);
  }
  return result;
}

/// What recompute costs for each byte that it saves, in seconds of a micro-batch: for a bound that of the best layer,
/// for a plan the mean.
double recompute_seconds_per_byte(UnitLoad const& load, bool is_plan) {
  double seconds = 0;
  double bytes = 0;
  double least = std::numeric_limits<double>::infinity();
  for (auto const& layer : load.layers) {
    auto const saved = static_cast<double>(layer.most_saved_by_recompute);
    if (saved <= 0) continue;
    seconds += layer.forward_s;
    bytes += saved;
    least = std::min(least, layer.forward_s / saved);
  }
  if (bytes == 0) return 0;
  return is_plan ? seconds / bytes : least;
}

std::int64_t usable_bytes(SearchInput const& input, UnitClass const& unit_class) {
  std::int64_t sum = 0;
  for (auto const& device : unit_class.devices) {
    if (device.memory_bytes < input.profile.baseline_bytes) return -1;
    sum += device.memory_bytes - input.profile.baseline_bytes;
  }
  return sum;
}

CutClass cut_class(SearchInput const& input, UnitClass const& unit_class, Candidate const& candidate, CostKind kind,
                   UnitLoad const& load, int num_units, bool is_quick) {
  auto const m = candidate.num_micro_batches;
  auto const num_ranks = static_cast<std::int64_t>(unit_class.devices.size());
  auto const element = size_of(input.profile.dtype);
  bool const is_gpipe = candidate.schedule == ScheduleKind::gpipe;
  // A gradient is still being sent while the next micro-batch comes back, if there are more than are in flight at once.
  bool const sends_beside = !is_gpipe && m > num_units;
  auto const memory_bytes = usable_bytes(input, unit_class);
  CutClass result;
  result.count = memory_bytes < 0 ? 0 : static_cast<int>(unit_class.units.size());
  result.memory_bytes = std::max<std::int64_t>(0, memory_bytes);
  for (int layer = 0; layer < input.layers.num_layers(); ++layer) {
    auto const index = static_cast<std::size_t>(layer);
    auto const& self = load.layers[index];
    double const update = kind == CostKind::bound_of_update ? self.update_s / static_cast<double>(m) : 0.0;
    result.seconds.push_back(micro_batch_seconds(load, index, links_of(input, unit_class, candidate, layer)) + update);

    auto const whole = round_allocation(input.profile.layers[index].num_parameters * element);
    auto const sharded = num_ranks > 1 ? input.profile.layers[index].num_parameters * element : whole;
    auto const gathered = num_ranks > 1 ? num_ranks * whole : 0;
    auto const memory = memory_of(load, index, gathered, candidate.schedule, false);
    result.fixed_bytes.push_back((2 + num_states(input.options.optimizer)) * sharded);
    result.in_flight_bytes.push_back(memory.kept);
    result.transient_bytes.push_back(memory.transient);
    result.input_bytes.push_back(layer == 0 ? load.input : load.layers[index - 1].output);
    result.begin_bytes.push_back(layer > 0 && sends_beside ? self.input_gradient : 0);
    if (!input.options.allow_recompute) continue;
    // Any set of layers may be recomputed, so the least of both holds for each layer.
    auto const recomputed = memory_of(load, index, gathered, candidate.schedule, true);
    result.least_in_flight_bytes.push_back(std::min(memory.kept, recomputed.kept));
    result.least_transient_bytes.push_back(std::min(memory.transient, recomputed.transient));
  }
  if (!input.options.allow_recompute) return result;
  // A layer saves its bytes for every micro-batch in flight. The quick cuts do not know how many these are, but at
  // most.
  result.seconds_per_byte = recompute_seconds_per_byte(load, is_plan(kind));
  result.per_in_flight = !is_quick;
  if (is_quick) {
    auto const most_in_flight = is_gpipe ? m : std::min<std::int64_t>({m, num_units, input.layers.num_layers()});
    result.seconds_per_byte /= static_cast<double>(most_in_flight);
  }
  return result;
}

/// What a micro-batch takes at least in the layers before and after each layer, whoever runs them.
void set_fill(CutProblem& problem, SearchInput const& input, Grouping const& grouping, Candidate const& candidate,
              CostKind kind, bool is_quick) {
  auto const num_layers = static_cast<std::size_t>(input.layers.num_layers());
  std::vector<double> least(num_layers, std::numeric_limits<double>::infinity());
  for (auto const& unit_class : grouping.classes) {
    auto const load = least_load(input, unit_class.devices, candidate.micro_batch);
    for (std::size_t layer = 0; layer < num_layers; ++layer) {
      auto const links = links_of(input, unit_class, candidate, static_cast<int>(layer));
      double const seconds =
          kind == CostKind::bound_of_update ? load.layers[layer].forward_s : micro_batch_seconds(load, layer, links);
      least[layer] = std::min(least[layer], seconds);
    }
  }
  problem.begin_seconds.assign(num_layers, 0.0);
  for (std::size_t layer = 1; layer < num_layers; ++layer)
    problem.begin_seconds[layer] = problem.begin_seconds[layer - 1] + least[layer - 1];
  if (is_quick) return;
  problem.end_seconds.assign(num_layers, 0.0);
  for (auto layer = num_layers - 1; layer > 0; --layer)
    problem.end_seconds[layer - 1] = problem.end_seconds[layer] + least[layer];
}

}  // namespace

GroupingCut cut_problem(SearchInput const& input, Grouping const& grouping, Candidate const& candidate, CostKind kind) {
  LayerRange const all_layers = {0, input.layers.num_layers()};
  GroupingCut result;
  result.problem.num_micro_batches = candidate.num_micro_batches;
  result.problem.schedule = candidate.schedule;
  result.problem.num_stages = input.options.num_stages.value_or(0);
  result.problem.objective = CutObjective::step;
  // A cut that looks at all positions takes some 50 ms for so many; beyond, all kinds are quick.
  double num_positions = static_cast<double>(all_layers.size());
  for (auto const& unit_class : grouping.classes) num_positions *= static_cast<double>(unit_class.units.size() + 1);
  bool const is_quick = (kind != CostKind::planned && kind != CostKind::bound) || num_positions > kMaxPositions;
  set_fill(result.problem, input, grouping, candidate, kind, is_quick);
  for (std::size_t index = 0; index < grouping.classes.size(); ++index) {
    auto const& unit_class = grouping.classes[index];
    auto const load =
        is_plan(kind) ? load_of(input, unit_class.devices,
                                shares_by_speed(unit_class.devices, all_layers, candidate.micro_batch, input.layers))
                      : least_load(input, unit_class.devices, candidate.micro_batch);
    result.problem.classes.push_back(
        cut_class(input, unit_class, candidate, kind, load, grouping.num_units(), is_quick));
    result.members.push_back({index});
  }
  merge_classes(result, !is_plan(kind));
  return result;
}

std::optional<double> work_bound(CutProblem const& problem) {
  auto const num_layers = problem.begin_seconds.size();
  std::vector<double> least(num_layers, std::numeric_limits<double>::infinity());
  std::vector<std::int64_t> least_bytes(num_layers, std::numeric_limits<std::int64_t>::max());
  std::int64_t memory_bytes = 0;
  for (auto const& unit_class : problem.classes) {
    if (unit_class.count == 0) continue;
    memory_bytes += unit_class.count * unit_class.memory_bytes;
    for (std::size_t layer = 0; layer < num_layers; ++layer) {
      least[layer] = std::min(least[layer], unit_class.seconds[layer]);
      least_bytes[layer] = std::min(least_bytes[layer], unit_class.fixed_bytes[layer]);
    }
  }
  if (memory_bytes == 0 || std::accumulate(least_bytes.begin(), least_bytes.end(), std::int64_t{0}) > memory_bytes)
    return {};

  // A unit that is never less than r times slower than the fastest does at most 1 / r of its work in the same time.
  double rate = 0;
  for (auto const& unit_class : problem.classes) {
    double slowness = std::numeric_limits<double>::infinity();
    auto const& seconds = unit_class.seconds;
    for (std::size_t layer = 0; layer < num_layers; ++layer) {
      if (least[layer] > 0) slowness = std::min(slowness, seconds[layer] / least[layer]);
    }
    if (std::isfinite(slowness)) rate += unit_class.count / slowness;
  }
  double const work = std::accumulate(least.begin(), least.end(), 0.0);
  double const longest = *std::max_element(least.begin(), least.end());
  return static_cast<double>(problem.num_micro_batches) * std::max(longest, rate > 0 ? work / rate : 0.0);
}

double least_last_update(SearchInput const& input, Grouping const& grouping) {
  double least = std::numeric_limits<double>::infinity();
  for (auto const& unit_class : grouping.classes) {
    least = std::min(least, least_load(input, unit_class.devices, 1).layers.front().update_s);
  }
  return least;
}

}  // namespace ballast::detail
