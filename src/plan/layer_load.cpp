// SPDX-License-Identifier: Apache-2.0
#include "layer_load.hpp"

#include "unit_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ballast::detail {
namespace {

constexpr std::int64_t kRoundingBytes =
    17 * kAllocationQuantum;  // what `LayerProfile::at` adds at most to an unmeasured size

double total_speed(std::vector<Device> const& devices) {
  double sum = 0;
  for (auto const& device : devices) sum += device.speed;
  return sum;
}

double update_seconds(SearchInput const& input, std::vector<Device> const& devices, std::size_t layer) {
  return input.profile.update_s_per_parameter * static_cast<double>(input.profile.layers[layer].num_parameters) *
         input.topology.dilation / total_speed(devices);
}

/// Returns the least of cost(point) / samples over 1..`samples` samples. `LayerProfile::at` is piecewise linear, so on
/// each piece the ratio is monotone and its least value lies at a measured point or at the end.
template <class Cost>
double least_per_sample(LayerProfile const& layer, LayerPoint const& end, double end_slack, Cost const& cost) {
  if (layer.points.empty()) return 0;
  auto const ratio = [&](LayerPoint const& point) {
    return static_cast<double>(cost(point)) / static_cast<double>(point.samples);
  };
  double least = std::max(0.0, static_cast<double>(cost(end)) - end_slack) / static_cast<double>(end.samples);
  least = std::min(least, ratio(layer.points.front()));
  for (auto const& point : layer.points) {
    if (point.samples <= end.samples) least = std::min(least, ratio(point));
  }
  return least;
}

/// Returns the least over all integer shares of the largest samples / speed of a rank.
double least_samples_per_speed(std::vector<Device> const& devices, std::int64_t micro_batch) {
  double const even = static_cast<double>(micro_batch) / total_speed(devices);
  std::vector<std::int64_t> shares;
  auto left = micro_batch;
  for (auto const& device : devices) {
    shares.push_back(std::min(left, static_cast<std::int64_t>(even * device.speed)));
    left -= shares.back();
  }
  double largest = even;
  for (; left > 0; --left) {  // at most one for each rank
    std::size_t next = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      double const ratio = static_cast<double>(shares[rank] + 1) / devices[rank].speed;
      if (ratio < least) {
        least = ratio;
        next = rank;
      }
    }
    ++shares[next];
    largest = std::max(largest, least);
  }
  return largest;
}

struct Seconds {
  double forward = 0.0;
  double both = 0.0;  ///< forward and backward
};

/// By work: some rank has at least as many samples per speed as the most even shares give, at the best cost per sample.
Seconds seconds_by_work(LayerProfile const& layer, LayerPoint const& end, double samples_per_speed) {
  auto const forward = [](LayerPoint const& point) { return point.forward_s; };
  auto const both = [](LayerPoint const& point) { return point.forward_s + point.backward_s; };
  return {samples_per_speed * least_per_sample(layer, end, 0.0, forward),
          samples_per_speed * least_per_sample(layer, end, 0.0, both)};
}

/// By samples: some rank has at least the mean number of samples, rounded up. No number of samples from there on is
/// cheaper than the cheapest of this and the measured ones above it.
Seconds seconds_by_samples(LayerProfile const& layer, LayerPoint const& mean, double fastest) {
  Seconds least{mean.forward_s, mean.forward_s + mean.backward_s};
  for (auto const& point : layer.points) {
    if (point.samples <= mean.samples) continue;
    least.forward = std::min(least.forward, point.forward_s);
    least.both = std::min(least.both, point.forward_s + point.backward_s);
  }
  return {least.forward / fastest, least.both / fastest};
}

/// The least bytes over all shares; seconds are set elsewhere.
LayerLoad least_bytes(LayerProfile const& layer, LayerPoint const& end, std::int64_t num_ranks) {
  bool const measured =
      std::any_of(layer.points.begin(), layer.points.end(), [&](auto const& p) { return p.samples == end.samples; });
  auto const bytes = [&](std::int64_t LayerPoint::*member) {
    auto const slack = measured ? 0.0 : static_cast<double>(kRoundingBytes);
    auto const per_sample = least_per_sample(layer, end, slack, [&](LayerPoint const& p) { return p.*member; });
    return static_cast<std::int64_t>(static_cast<double>(end.samples) * per_sample);
  };
  LayerLoad load;
  load.saved = bytes(&LayerPoint::saved_bytes);
  load.output = bytes(&LayerPoint::output_bytes);
  load.forward_peak = bytes(&LayerPoint::forward_peak_bytes);
  load.forward_only_peak = bytes(&LayerPoint::forward_only_peak_bytes);
  load.backward_peak = bytes(&LayerPoint::backward_peak_bytes);
  load.input_gradient = bytes(&LayerPoint::input_gradient_bytes);
  // The most over all shares: by the largest ratio, plus what each rank's rounding may add.
  double largest = 0;
  auto const consider = [&](LayerPoint const& point) {
    largest = std::max(
        largest, static_cast<double>(point.saved_bytes - point.output_bytes) / static_cast<double>(point.samples));
  };
  consider(end);
  if (!layer.points.empty()) consider(layer.points.front());
  for (auto const& point : layer.points) {
    if (point.samples <= end.samples) consider(point);
  }
  if (largest > 0) {
    load.most_saved_by_recompute =
        static_cast<std::int64_t>(std::ceil(largest * static_cast<double>(end.samples))) + num_ranks * kRoundingBytes;
  }
  return load;
}

void add(LayerLoad& load, LayerPoint const& point, double slowness) {
  load.forward_s = std::max(load.forward_s, point.forward_s * slowness);
  load.backward_s = std::max(load.backward_s, point.backward_s * slowness);
  load.saved += point.saved_bytes;
  load.output += point.output_bytes;
  load.forward_peak += point.forward_peak_bytes;
  load.forward_only_peak += point.forward_only_peak_bytes;
  load.backward_peak += point.backward_peak_bytes;
  load.input_gradient += point.input_gradient_bytes;
  load.most_saved_by_recompute += std::max<std::int64_t>(0, point.saved_bytes - point.output_bytes);
}

}  // namespace

UnitLoad load_of(SearchInput const& input, std::vector<Device> const& devices,
                 std::vector<std::int64_t> const& batch_share) {
  UnitLoad result;
  result.layers.resize(input.profile.layers.size());
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    auto const& points = input.layers.at(batch_share[rank]);
    double const slowness = input.topology.dilation / devices[rank].speed;
    for (std::size_t layer = 0; layer < result.layers.size(); ++layer)
      add(result.layers[layer], points[layer], slowness);
    add(result.loss, points.back(), slowness);
    result.input += round_allocation(batch_share[rank] * input.profile.input_bytes_per_sample);
    result.target += round_allocation(batch_share[rank] * input.profile.target_bytes_per_sample);
  }
  for (std::size_t layer = 0; layer < result.layers.size(); ++layer)
    result.layers[layer].update_s = update_seconds(input, devices, layer);
  return result;
}

UnitLoad least_load(SearchInput const& input, std::vector<Device> const& devices, std::int64_t micro_batch) {
  if (devices.size() == 1) return load_of(input, devices, {micro_batch});
  auto const& points = input.layers.at(micro_batch);
  auto const num_ranks = static_cast<std::int64_t>(devices.size());
  auto const& means = input.layers.at((micro_batch + num_ranks - 1) / num_ranks);
  double const samples_per_speed = least_samples_per_speed(devices, micro_batch);
  double fastest = 0;
  for (auto const& device : devices) fastest = std::max(fastest, device.speed);

  // Either bound holds for the sum over any layers, but not a mixture of both: they speak about different ranks.
  std::vector<Seconds> by_work;
  std::vector<Seconds> by_samples;
  double work = 0;
  double samples = 0;
  for (std::size_t layer = 0; layer < points.size(); ++layer) {
    auto const& profile = layer + 1 < points.size() ? input.profile.layers[layer] : input.profile.loss;
    by_work.push_back(seconds_by_work(profile, points[layer], samples_per_speed));
    by_samples.push_back(seconds_by_samples(profile, means[layer], fastest));
    work += by_work.back().both;
    samples += by_samples.back().both;
  }
  auto const& seconds = work > samples ? by_work : by_samples;
  auto const set_seconds = [&](LayerLoad& load, Seconds const& least) {
    load.forward_s = least.forward * input.topology.dilation;
    load.backward_s = std::max(0.0, least.both - least.forward) * input.topology.dilation;
  };

  UnitLoad result;
  for (std::size_t layer = 0; layer < input.profile.layers.size(); ++layer) {
    result.layers.push_back(least_bytes(input.profile.layers[layer], points[layer], num_ranks));
    result.layers.back().update_s = update_seconds(input, devices, layer);
    set_seconds(result.layers.back(), seconds[layer]);
  }
  result.loss = least_bytes(input.profile.loss, points.back(), num_ranks);
  set_seconds(result.loss, seconds.back());
  result.input = micro_batch * input.profile.input_bytes_per_sample;
  result.target = micro_batch * input.profile.target_bytes_per_sample;
  return result;
}

}  // namespace ballast::detail
