// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_profile.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/base/seed.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of the struct

constexpr char const* kSchema = "ballast.model/1";
constexpr std::int64_t kUnmeasuredQuanta = 16;

constexpr double LayerPoint::*kTimes[] = {&LayerPoint::forward_s, &LayerPoint::backward_s};
constexpr std::int64_t LayerPoint::*kBytes[] = {&LayerPoint::saved_bytes,         &LayerPoint::output_bytes,
                                                &LayerPoint::forward_peak_bytes,  &LayerPoint::forward_only_peak_bytes,
                                                &LayerPoint::backward_peak_bytes, &LayerPoint::input_gradient_bytes};

/// The line through two points at `samples`; beyond the larger one it never falls, whatever the noise of measuring
/// says.
double along(double low, double high, double fraction) {
  return fraction > 1 ? high + std::max(0.0, high - low) * (fraction - 1) : low + (high - low) * fraction;
}

Json json_of(LayerProfile const& layer) {
  Json points = Json::array();
  for (auto const& point : layer.points) {
    points.push_back({{"samples", point.samples},
                      {"forward_s", point.forward_s},
                      {"backward_s", point.backward_s},
                      {"saved_bytes", point.saved_bytes},
                      {"output_bytes", point.output_bytes},
                      {"forward_peak_bytes", point.forward_peak_bytes},
                      {"forward_only_peak_bytes", point.forward_only_peak_bytes},
                      {"backward_peak_bytes", point.backward_peak_bytes},
                      {"input_gradient_bytes", point.input_gradient_bytes}});
  }
  return {{"name", layer.name}, {"num_parameters", layer.num_parameters}, {"points", points}};
}

LayerProfile layer_from(JsonReader reader) {
  LayerProfile layer;
  layer.name = reader.text("name");
  layer.num_parameters = reader.integer("num_parameters", 0);
  for (auto& entry : reader.objects("points")) {
    LayerPoint point;
    point.samples = entry.integer("samples", layer.points.empty() ? 1 : layer.points.back().samples + 1);
    point.forward_s = entry.number("forward_s", 0);
    point.backward_s = entry.number("backward_s", 0);
    point.saved_bytes = entry.integer("saved_bytes", 0);
    point.output_bytes = entry.integer("output_bytes", 0);
    point.forward_peak_bytes = entry.integer("forward_peak_bytes", 0);
    point.forward_only_peak_bytes = entry.integer("forward_only_peak_bytes", 0);
    point.backward_peak_bytes = entry.integer("backward_peak_bytes", 0);
    point.input_gradient_bytes = entry.integer("input_gradient_bytes", 0);
    entry.finish();
    layer.points.push_back(point);
  }
  if (layer.points.empty()) reader.fail("points", "at least one measured point");
  reader.finish();
  return layer;
}

}  // namespace

LayerPoint LayerProfile::at(std::int64_t samples) const {
  if (samples < 0) throw InvalidArgument(fmt::format("layer {}: no costs of {} samples", name, samples));
  LayerPoint result;
  result.samples = samples;
  if (samples == 0 || points.empty()) return result;

  auto const above =
      std::lower_bound(points.begin(), points.end(), samples,
                       [](LayerPoint const& point, std::int64_t wanted) { return point.samples < wanted; });
  if (above != points.end() && above->samples == samples) return *above;
  // The two points of the line: the neighbours, the last two beyond the end, nothing and the first below it.
  static LayerPoint const nothing;
  auto const& high = above == points.end() ? points.back() : *above;
  auto const& low = above == points.begin() || points.size() == 1 ? nothing
                    : above == points.end()                       ? points[points.size() - 2]
                                                                  : *(above - 1);
  double const fraction = static_cast<double>(samples - low.samples) / static_cast<double>(high.samples - low.samples);
  for (auto const member : kTimes) result.*member = along(low.*member, high.*member, fraction);
  for (auto const member : kBytes) {
    double const bytes = along(static_cast<double>(low.*member), static_cast<double>(high.*member), fraction);
    if (bytes > 0) {
      result.*member = round_allocation(static_cast<std::int64_t>(std::ceil(std::min(bytes, 0x1p60)))) +
                       kUnmeasuredQuanta * kAllocationQuantum;
    }
  }
  return result;
}

std::string to_json(ModelProfile const& profile) {
  Json layers = Json::array();
  for (auto const& layer : profile.layers) layers.push_back(json_of(layer));
  Json const json = {{"schema", kSchema},
                     {"name", profile.name},
                     {"dtype", to_string(profile.dtype)},
                     {"device", profile.device},
                     {"input_bytes_per_sample", profile.input_bytes_per_sample},
                     {"target_bytes_per_sample", profile.target_bytes_per_sample},
                     {"baseline_bytes", profile.baseline_bytes},
                     {"update_s_per_parameter", profile.update_s_per_parameter},
                     {"layers", layers},
                     {"loss", json_of(profile.loss)}};
  return json.dump(2) + "\n";
}

ModelProfile model_profile_from_json(std::string_view text, std::string const& source) {
  auto const json = parse_json(text, source);
  JsonReader reader(json, source);
  reader.schema(kSchema);
  ModelProfile profile;
  profile.name = reader.text("name");
  auto const dtype = reader.text("dtype");
  try {
    profile.dtype = parse_data_type(dtype);
  } catch (InvalidArgument const& error) {
    reader.fail("dtype", fmt::format("a data type ({})", error.what()));
  }
  profile.device = reader.text("device");
  profile.input_bytes_per_sample = reader.integer("input_bytes_per_sample", 0);
  profile.target_bytes_per_sample = reader.integer("target_bytes_per_sample", 0);
  profile.baseline_bytes = reader.integer("baseline_bytes", 0);
  profile.update_s_per_parameter = reader.number("update_s_per_parameter", 0);
  for (auto& layer : reader.objects("layers")) profile.layers.push_back(layer_from(std::move(layer)));
  if (profile.layers.empty()) reader.fail("layers", "at least one layer");
  profile.loss = layer_from(reader.object("loss"));
  reader.finish();
  return profile;
}

std::string fingerprint(ModelProfile const& profile) {
  Json layers = Json::array();
  for (auto const& layer : profile.layers) layers.push_back({layer.name, layer.num_parameters});
  Json const identity = {profile.name, to_string(profile.dtype), layers};
  return fingerprint(std::string_view(identity.dump()));
}

}  // namespace ballast
