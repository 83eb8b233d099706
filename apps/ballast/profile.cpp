// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/units.hpp"
#include "ballast/cluster/measure.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/report/text_table.hpp"
#include "job.hpp"
#include "verb.hpp"

#include <algorithm>
#include <tuple>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ballast {
namespace {

std::string to_text(CollectiveProfile const& profile) {
  TextTable table({"operation", "level", "ranks", "size", "time", "algbw", "busbw"}, 2);
  auto points = profile.points;
  std::stable_sort(points.begin(), points.end(), [](CollectivePoint const& left, CollectivePoint const& right) {
    return std::tie(left.level, left.operation, left.ranks) < std::tie(right.level, right.operation, right.ranks);
  });
  for (auto const& point : points) {
    table.add({to_string(point.operation), to_string(point.level), std::to_string(point.ranks),
               format_bytes(point.bytes), format_seconds(point.seconds), format_rate(algbw(point)),
               format_rate(busbw(point))});
  }
  return table.text();
}

std::string to_text(ModelProfile const& profile) {
  TextTable table({"layer", "parameters", "samples", "forward", "backward", "saved", "rise forward", "rise backward"});
  auto const add = [&](LayerProfile const& layer) {
    for (auto const& point : layer.points) {
      bool const is_first = &point == &layer.points.front();
      table.add({is_first ? layer.name : "", is_first ? std::to_string(layer.num_parameters) : "",
                 std::to_string(point.samples), format_seconds(point.forward_s), format_seconds(point.backward_s),
                 format_bytes(point.saved_bytes), format_bytes(point.forward_peak_bytes),
                 format_bytes(point.backward_peak_bytes)});
    }
  };
  for (auto const& layer : profile.layers) add(layer);
  add(profile.loss);
  return table.text();
}

class ProfileCollectives final : public Verb {
 public:
  explicit ProfileCollectives(CLI::App& parent)
      : Verb(parent, "collectives", "Measure collectives and messages within and between nodes") {
    app().add_option("--cluster", cluster_, "Behave as the cluster that this file describes")->type_name("FILE");
    app().add_option("--budget", budget_, "Time for everything")->type_name("TIME")->capture_default_str();
  }

  int run(Environment& environment) override {
    MeasureOptions options;
    options.budget_s = parse_seconds(budget_);
    if (!(options.budget_s > 0)) throw InvalidArgument("--budget: expected a time above 0");
    use_cluster(environment, cluster_);
    auto const profile = measure_collectives(environment.world(), environment.topology(), options);
    print(environment, to_json(profile), to_text(profile));
    return 0;
  }

 private:
  std::filesystem::path cluster_;
  std::string budget_ = "10s";
};

class ProfileTheModel final : public Verb {
 public:
  explicit ProfileTheModel(CLI::App& parent)
      : Verb(parent, "model", "Measure every layer of a model, one at a time"), arguments_(app(), true) {}

  int run(Environment& environment) override {
    auto settings = arguments_.settings();
    auto const config = read_run_config(settings);
    if (arguments_.shows_only()) {
      print(environment, settings.origins().dump(2) + "\n", settings.toml());
      return 0;
    }
    start_run(environment, settings, config);
    std::unique_ptr<Dataset> data;
    collectively(environment.world(), [&] { data = make_training_data(config); });
    auto options = auto_plan_options(config).profile;
    for (std::int64_t samples = 1; samples < largest_micro_batch(config); samples *= 2)
      options.samples.push_back(samples);
    options.samples.push_back(largest_micro_batch(config));
    auto const profile = profile_on_ranks(environment, make_model(config), profiling_sample(config, *data), options);
    print(environment, to_json(profile), to_text(profile));
    return 0;
  }

 private:
  RunArguments arguments_;
};

}  // namespace

std::unique_ptr<Verb> make_profile_collectives(CLI::App& profile) {
  return std::make_unique<ProfileCollectives>(profile);
}
std::unique_ptr<Verb> make_profile_model(CLI::App& profile) { return std::make_unique<ProfileTheModel>(profile); }

}  // namespace ballast
