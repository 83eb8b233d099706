// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/units.hpp"
#include "ballast/plan/plan.hpp"
#include "verb.hpp"

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

/// Something that two plans say differently.
struct Difference {
  std::string what;
  std::string before;
  std::string after;
};

struct Setting {
  std::string name;
  std::string value;
};

std::vector<Setting> settings_of(Plan const& plan) {
  std::string stages;
  std::string micro_batch;
  for (auto const& replica : plan.replicas) {
    stages += fmt::format("{}{}", stages.empty() ? "" : " + ", replica.stages.size());
    if (!replica.stages.empty()) micro_batch = std::to_string(replica.stages.front().micro_batch());
  }
  auto const& predicted = plan.predictions;
  bool const has_predictions = !predicted.ranks.empty();
  return {{"model", plan.model},
          {"topology", plan.topology},
          {"dtype", to_string(plan.dtype)},
          {"optimizer", to_string(plan.optimizer)},
          {"schedule", to_string(plan.schedule)},
          {"global batch", std::to_string(plan.global_batch)},
          {"micro-batches", fmt::format("{} of {}", plan.num_micro_batches, micro_batch)},
          {"stages", stages},
          {"step", has_predictions ? format_seconds(predicted.step_s) : "-"},
          {"bubble", has_predictions ? fmt::format("{:.1f} %", 100 * predicted.bubble) : "-"}};
}

/// Where a layer is: "ranks 0,1, recomputed"; of every replica.
std::string place_of(Plan const& plan, int layer) {
  std::string result;
  for (auto const& replica : plan.replicas) {
    for (auto const& stage : replica.stages) {
      if (layer < stage.layers.begin || layer >= stage.layers.end) continue;
      bool const recomputes = std::find(stage.recompute.begin(), stage.recompute.end(), layer) != stage.recompute.end();
      result +=
          fmt::format("{}ranks {}{}{}", result.empty() ? "" : "; ", fmt::join(stage.ranks, ","),
                      stage.ranks.size() > 1 ? ", " + to_string(stage.zero) : "", recomputes ? ", recomputed" : "");
    }
  }
  return result.empty() ? "nowhere" : result;
}

/// Samples and shard weight of a rank: "samples 3, shard 3 of 4".
std::string shares_of(Plan const& plan, int rank) {
  for (auto const& replica : plan.replicas) {
    for (auto const& stage : replica.stages) {
      for (std::size_t place = 0; place < stage.ranks.size(); ++place) {
        if (stage.ranks[place] != rank || place >= stage.batch_share.size() || place >= stage.shard_share.size())
          continue;
        std::int64_t total = 0;
        for (auto const share : stage.shard_share) total += share;
        return fmt::format("samples {}, shard {} of {}", stage.batch_share[place], stage.shard_share[place], total);
      }
    }
  }
  return "idle";
}

std::string peak_of(Plan const& plan, int rank) {
  return rank < std::ssize(plan.predictions.ranks) ? format_bytes(plan.predictions.ranks[rank].memory.peak()) : "-";
}

std::vector<Difference> differences(Plan const& before, Plan const& after) {
  std::vector<Difference> result;
  auto const add = [&](std::string what, std::string left, std::string right) {
    if (left != right) result.push_back({std::move(what), std::move(left), std::move(right)});
  };
  auto const left = settings_of(before);
  auto const right = settings_of(after);
  for (std::size_t setting = 0; setting < left.size(); ++setting) {
    add(left[setting].name, left[setting].value, right[setting].value);
  }
  if (before.layers != after.layers) {
    add("layers", fmt::format("{}", fmt::join(before.layers, ",")), fmt::format("{}", fmt::join(after.layers, ",")));
  } else {
    for (int layer = 0; layer < std::ssize(before.layers); ++layer) {
      add("layer " + before.layers[layer], place_of(before, layer), place_of(after, layer));
    }
  }
  for (int rank = 0; rank < std::max(before.num_ranks(), after.num_ranks()); ++rank) {
    add(fmt::format("rank {} shares", rank), shares_of(before, rank), shares_of(after, rank));
    add(fmt::format("rank {} peak", rank), peak_of(before, rank), peak_of(after, rank));
  }
  return result;
}

std::string to_text(std::vector<Difference> const& all) {
  if (all.empty()) return "no difference\n";
  std::size_t width = 0;
  for (auto const& difference : all) width = std::max(width, difference.what.size());
  std::string result;
  for (auto const& [what, before, after] : all) result += fmt::format("{:<{}}  {} -> {}\n", what, width, before, after);
  return result;
}

std::string to_json(std::vector<Difference> const& all) {
  nlohmann::ordered_json json = {{"schema", "ballast.diff/1"}, {"differences", nlohmann::ordered_json::array()}};
  for (auto const& [what, before, after] : all) {
    json["differences"].push_back({{"what", what}, {"before", before}, {"after", after}});
  }
  return json.dump(2) + "\n";
}

class Diff final : public Verb {
 public:
  explicit Diff(CLI::App& parent) : Verb(parent, "diff", "Say what moved between two plans, with steps and peaks") {
    app().add_option("A.json", before_, "Plan")->required();
    app().add_option("B.json", after_, "Other plan")->required();
  }

  int run(Environment& environment) override {
    auto const all = differences(plan_from_json(read_file(before_), before_.string()),
                                 plan_from_json(read_file(after_), after_.string()));
    print(environment, to_json(all), to_text(all));
    return 0;
  }

 private:
  std::filesystem::path before_;
  std::filesystem::path after_;
};

}  // namespace

std::unique_ptr<Verb> make_diff(CLI::App& parent) { return std::make_unique<Diff>(parent); }

}  // namespace ballast
