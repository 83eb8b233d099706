// SPDX-License-Identifier: Apache-2.0
#include "balance_input.hpp"

#include "ballast/base/error.hpp"

#include <cmath>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;    // of one thing; sums and products stay within 64 bits
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 32;  // of a step

void check_bytes(std::int64_t bytes, std::string const& what) {
  if (bytes < 0 || bytes > kMaxBytes)
    throw InvalidArgument(fmt::format("{} is {} bytes, expected 0 to 2^50", what, bytes));
}

void check_seconds(double seconds, std::string const& what) {
  if (!std::isfinite(seconds) || seconds < 0)
    throw InvalidArgument(fmt::format("{} is {} s, expected a finite time >= 0", what, seconds));
}

void check_layer(LayerProfile const& layer, std::int64_t global_batch) {
  auto const name = fmt::format("model profile: layer \"{}\"", layer.name);
  if (layer.points.empty()) throw InvalidArgument(name + " has no measured point");
  check_bytes(layer.num_parameters, name + ": num_parameters");
  std::int64_t last = 0;
  for (auto const& point : layer.points) {
    if (point.samples <= last) {
      throw InvalidArgument(fmt::format(
          "{} has a point of {} samples after one of {}; they must be positive and ascend", name, point.samples, last));
    }
    last = point.samples;
    auto const where = fmt::format("{} at {} samples: ", name, point.samples);
    check_seconds(point.forward_s, where + "forward_s");
    check_seconds(point.backward_s, where + "backward_s");
    check_bytes(point.saved_bytes, where + "saved_bytes");
    check_bytes(point.output_bytes, where + "output_bytes");
    check_bytes(point.forward_peak_bytes, where + "forward_peak_bytes");
    check_bytes(point.forward_only_peak_bytes, where + "forward_only_peak_bytes");
    check_bytes(point.backward_peak_bytes, where + "backward_peak_bytes");
    check_bytes(point.input_gradient_bytes, where + "input_gradient_bytes");
  }
  auto const most = layer.at(global_batch);
  check_bytes(std::max({most.saved_bytes, most.output_bytes, most.forward_peak_bytes, most.forward_only_peak_bytes,
                        most.backward_peak_bytes, most.input_gradient_bytes}),
              fmt::format("{}: what {} samples need", name, global_batch));
}

void check_profile(ModelProfile const& profile, std::int64_t global_batch) {
  if (profile.layers.empty()) throw InvalidArgument("model profile: it has no layers");
  if (profile.dtype != DataType::float32 && profile.dtype != DataType::float64 && profile.dtype != DataType::bfloat16) {
    throw InvalidArgument(fmt::format("model profile: dtype {} cannot be trained", to_string(profile.dtype)));
  }
  for (auto const& layer : profile.layers) check_layer(layer, global_batch);
  if (!profile.loss.points.empty()) check_layer(profile.loss, global_batch);
  check_bytes(profile.baseline_bytes, "model profile: baseline_bytes");
  check_bytes(profile.input_bytes_per_sample, "model profile: input_bytes_per_sample");
  check_bytes(profile.target_bytes_per_sample, "model profile: target_bytes_per_sample");
  check_bytes(
      kMaxBytes / global_batch < std::max(profile.input_bytes_per_sample, profile.target_bytes_per_sample) ? -1 : 0,
      "model profile: what the inputs of a step need");
  check_seconds(profile.update_s_per_parameter, "model profile: update_s_per_parameter");
}

void check_topology(Topology const& topology) {
  if (topology.devices.empty()) throw InvalidArgument("topology: it has no devices");
  if (!std::isfinite(topology.dilation) || topology.dilation <= 0) {
    throw InvalidArgument(fmt::format("topology: dilation is {}, expected a finite number > 0", topology.dilation));
  }
  for (int rank = 0; rank < topology.num_ranks(); ++rank) {
    auto const& device = topology.devices[static_cast<std::size_t>(rank)];
    if (!std::isfinite(device.speed) || device.speed <= 0) {
      throw InvalidArgument(
          fmt::format("topology: rank {} has speed {}, expected a finite number > 0", rank, device.speed));
    }
    check_bytes(device.memory_bytes, fmt::format("topology: the memory of rank {}", rank));
  }
}

void check_options(BalanceOptions const& options, int num_layers, int num_ranks) {
  if (options.global_batch < 1 || options.global_batch > kMaxSamples) {
    throw InvalidArgument(fmt::format("options: the global batch is {}, expected 1 to 2^32", options.global_batch));
  }
  for (auto const samples : options.micro_batches) {
    if (samples < 1)
      throw InvalidArgument(fmt::format("options: a micro-batch of {} samples is not possible", samples));
  }
  if (options.schedules.empty()) throw InvalidArgument("options: no schedule is allowed");
  if (!(options.reserve >= 0 && options.reserve < 1)) {
    throw InvalidArgument(fmt::format("options: the reserve is {}, expected 0 <= reserve < 1", options.reserve));
  }
  if (options.num_stages && (*options.num_stages < 1 || *options.num_stages > std::min(num_layers, num_ranks))) {
    throw InvalidArgument(fmt::format("options: {} stages are not possible with {} layers and {} ranks",
                                      *options.num_stages, num_layers, num_ranks));
  }
  if (options.group_size && (*options.group_size < 1 || *options.group_size > num_ranks)) {
    throw InvalidArgument(
        fmt::format("options: groups of {} ranks are not possible with {} ranks", *options.group_size, num_ranks));
  }
  if (options.num_stages && options.group_size && *options.num_stages > num_ranks / *options.group_size) {
    throw InvalidArgument(fmt::format("options: {} stages of {} ranks are not possible with {} ranks",
                                      *options.num_stages, *options.group_size, num_ranks));
  }
}

}  // namespace

void check_balance_input(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                         BalanceOptions const& options) {
  check_options(options, static_cast<int>(profile.layers.size()), topology.num_ranks());
  check_profile(profile, options.global_batch);
  check_topology(topology);
  for (auto const& point : collectives.points)
    check_seconds(point.seconds, fmt::format("collectives: {} of {} bytes", to_string(point.operation), point.bytes));
}

}  // namespace ballast::detail
