// SPDX-License-Identifier: Apache-2.0
/// Models, clusters and plans for the tests of plan.
#pragma once

#include "ballast/cluster/collective_profile.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/model/model_profile.hpp"
#include "ballast/plan/balance.hpp"
#include "ballast/plan/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ballast::test {

/// What `make_layer` needs to know, per sample.
struct LayerSketch {
  std::string name;
  std::int64_t num_parameters = 0;
  double forward_s = 0.0;
  std::int64_t output_bytes = 512;
  std::int64_t saved_bytes = 512;
  double overhead_s = 0.0;           ///< of each pass, whatever the number of samples
  std::int64_t transient_bytes = 0;  ///< beyond what stays
  bool has_input_gradient = true;
};

/// A layer measured at 1, 2, 4 and 8 samples; backward takes twice the forward.
inline LayerProfile make_layer(LayerSketch const& sketch, std::int64_t input_bytes) {
  LayerProfile layer{sketch.name, sketch.num_parameters, {}};
  for (std::int64_t const samples : {1, 2, 4, 8}) {
    LayerPoint point;
    point.samples = samples;
    point.forward_s = sketch.overhead_s + sketch.forward_s * static_cast<double>(samples);
    point.backward_s = 2 * point.forward_s;
    point.output_bytes = round_allocation(samples * sketch.output_bytes);
    point.saved_bytes = std::max(point.output_bytes, round_allocation(samples * sketch.saved_bytes));
    point.forward_peak_bytes = point.saved_bytes + round_allocation(samples * sketch.transient_bytes);
    point.forward_only_peak_bytes = point.output_bytes + round_allocation(samples * sketch.transient_bytes);
    point.input_gradient_bytes = sketch.has_input_gradient ? round_allocation(samples * input_bytes) : 0;
    point.backward_peak_bytes = point.input_gradient_bytes + round_allocation(samples * sketch.transient_bytes);
    layer.points.push_back(point);
  }
  return layer;
}

inline BalanceOptions batch_of(std::int64_t global_batch) {
  BalanceOptions options;
  options.global_batch = global_batch;
  return options;
}

inline ModelProfile make_model(std::vector<LayerSketch> const& sketches) {
  ModelProfile profile;
  profile.name = "sketch";
  profile.device = "cpu";
  profile.input_bytes_per_sample = 256;
  profile.target_bytes_per_sample = 8;
  profile.baseline_bytes = 0;
  profile.update_s_per_parameter = 0.0;
  std::int64_t input_bytes = profile.input_bytes_per_sample;
  for (auto sketch : sketches) {
    if (profile.layers.empty()) sketch.has_input_gradient = false;
    profile.layers.push_back(make_layer(sketch, input_bytes));
    input_bytes = sketch.output_bytes;
  }
  profile.loss.name = "loss";
  for (std::int64_t const samples : {1, 2, 4, 8}) {
    LayerPoint point;
    point.samples = samples;
    point.input_gradient_bytes = round_allocation(samples * input_bytes);
    point.forward_peak_bytes = 2 * point.input_gradient_bytes;
    profile.loss.points.push_back(point);
  }
  return profile;
}

/// `num_layers` equal layers "layer0", ... without messages worth a byte.
inline ModelProfile uniform_model(int num_layers, double forward_s, std::int64_t num_parameters = 0) {
  std::vector<LayerSketch> sketches;
  for (int layer = 0; layer < num_layers; ++layer)
    sketches.push_back({"layer" + std::to_string(layer), num_parameters, forward_s});
  return make_model(sketches);
}

/// Nodes of equal devices: `ranks_per_node[n]` of them on node n.
inline Topology make_topology(std::vector<int> const& ranks_per_node, std::int64_t memory_bytes, double speed = 1.0) {
  Topology topology;
  for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
    topology.nodes.push_back({"node" + std::to_string(node), 1, 1, 1, 0, {}});
    for (int local = 0; local < ranks_per_node[node]; ++local) {
      topology.devices.push_back({static_cast<int>(node), "cpu", memory_bytes, speed});
    }
  }
  return topology;
}

/// Everything takes `seconds`, whatever its size and place.
inline CollectiveProfile flat_collectives(double seconds) {
  CollectiveProfile profile;
  profile.measured = true;
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::send}) {
    for (int const ranks : {2, 3, 4, 5, 6, 7, 8}) {
      if (operation == Operation::send && ranks > 2) continue;
      // A profile is proportional beyond its largest point, so that lies far out.
      for (std::int64_t const bytes : {std::int64_t{1}, std::int64_t{1} << 50}) {
        profile.points.push_back({operation, LinkLevel::node, ranks, bytes, seconds});
      }
    }
  }
  return profile;
}

inline std::vector<std::string> layer_names(ModelProfile const& profile) {
  std::vector<std::string> names;
  for (auto const& layer : profile.layers) names.push_back(layer.name);
  return names;
}

inline Stage make_stage(int begin, int end, std::vector<int> ranks, std::vector<std::int64_t> batch_share) {
  Stage stage;
  stage.layers = {begin, end};
  stage.shard_share.assign(ranks.size(), 1);
  stage.ranks = std::move(ranks);
  stage.batch_share = std::move(batch_share);
  return stage;
}

/// A plan for `profile` with these stages.
inline Plan make_plan(ModelProfile const& profile, std::int64_t num_micro_batches, std::vector<Stage> stages,
                      ScheduleKind schedule = ScheduleKind::one_f_one_b) {
  Plan plan;
  plan.layers = layer_names(profile);
  plan.dtype = profile.dtype;
  plan.optimizer = OptimizerKind::adamw;
  plan.num_micro_batches = num_micro_batches;
  plan.global_batch = num_micro_batches * stages.front().micro_batch();
  plan.schedule = schedule;
  plan.replicas.push_back({std::move(stages)});
  return plan;
}

/// A model like GPT: an embedding, equal blocks, a head as wide as the vocabulary.
inline ModelProfile gpt_like(int num_blocks, std::int64_t width, std::int64_t vocabulary, std::int64_t sequence) {
  std::vector<LayerSketch> sketches;
  auto const activation = sequence * width * 4;
  double const flops_per_s = 1e11;
  auto const parameters = 12 * width * width;
  sketches.push_back({"embed", vocabulary * width, 1e-5, activation, activation});
  for (int block = 0; block < num_blocks; ++block) {
    sketches.push_back({"block" + std::to_string(block), parameters,
                        2.0 * static_cast<double>(parameters * sequence) / flops_per_s, activation, 16 * activation,
                        1e-4, 4 * activation});
  }
  sketches.push_back({"head", vocabulary * width,
                      2.0 * static_cast<double>(vocabulary * width * sequence) / flops_per_s, sequence * vocabulary * 4,
                      sequence * vocabulary * 4, 1e-4});
  auto profile = make_model(sketches);
  profile.update_s_per_parameter = 1e-9;
  profile.baseline_bytes = 1 << 20;
  return profile;
}

}  // namespace ballast::test
