// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/simulate.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/units.hpp"
#include "ballast/plan/validate.hpp"
#include "ballast/report/chrome_trace.hpp"
#include "ballast/report/text_table.hpp"
#include "verb.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

std::string to_text(Simulation const& simulation) {
  TextTable table({"rank", "busy", "communicate", "wait"});
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    auto const& times = simulation.ranks[rank];
    table.add({std::to_string(rank), format_seconds(times.busy_s), format_seconds(times.communicate_s),
               format_seconds(times.wait_s)});
  }
  return fmt::format("step {}, bubble {:.1f} %\n", format_seconds(simulation.step_s), 100 * simulation.bubble) +
         table.text();
}

std::string to_json(Simulation const& simulation) {
  nlohmann::ordered_json json = {{"schema", "ballast.simulation/1"},
                                 {"step_s", simulation.step_s},
                                 {"bubble", simulation.bubble},
                                 {"stage_micro_batch_s", simulation.stage_micro_batch_s},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (auto const& times : simulation.ranks) {
    json["ranks"].push_back(
        {{"busy_s", times.busy_s}, {"communicate_s", times.communicate_s}, {"wait_s", times.wait_s}});
  }
  return json.dump(2) + "\n";
}

class Simulate final : public Verb {
 public:
  explicit Simulate(CLI::App& parent) : Verb(parent, "simulate", "Play one step of a plan through") {
    app().add_option("plan.json", plan_, "Plan")->required();
    app()
        .add_option("--model", model_, "Profile of the model (default: model.json beside the plan)")
        ->type_name("FILE");
    app().add_option("--topology", topology_, "Topology (default: topology.json beside the plan)")->type_name("FILE");
    app()
        .add_option("--collectives", collectives_,
                    "Collective profile (default: collectives.json beside the plan, if it is there)")
        ->type_name("FILE");
    app().add_option("--trace", trace_, "Write a Chrome trace (chrome://tracing, ui.perfetto.dev)")->type_name("FILE");
  }

  int run(Environment& environment) override {
    auto const beside = [&](std::filesystem::path const& given, char const* name) {
      return given.empty() ? plan_.parent_path() / name : given;
    };
    auto const model_path = beside(model_, "model.json");
    auto const topology_path = beside(topology_, "topology.json");
    auto const collectives_path = beside(collectives_, "collectives.json");
    auto const plan = plan_from_json(read_file(plan_), plan_.string());
    auto const model = model_profile_from_json(read_file(model_path), model_path.string());
    auto const topology = topology_from_json(read_file(topology_path), topology_path.string());
    bool const use_defaults = collectives_.empty() && !std::filesystem::exists(collectives_path);
    auto const collectives = use_defaults
                                 ? default_collective_profile(topology)
                                 : collective_profile_from_json(read_file(collectives_path), collectives_path.string());

    std::vector<std::string> layers;
    for (auto const& layer : model.layers) layers.push_back(layer.name);
    require_runnable(plan, layers, topology.num_ranks());
    auto const simulation = simulate(plan, model, topology, collectives);
    if (!trace_.empty() && environment.rank() == 0) {
      write_file_atomically(trace_, to_chrome_trace(simulation.timeline, layers));
    }
    print(environment, to_json(simulation), to_text(simulation));
    return 0;
  }

 private:
  std::filesystem::path plan_;
  std::filesystem::path model_;
  std::filesystem::path topology_;
  std::filesystem::path collectives_;
  std::filesystem::path trace_;
};

}  // namespace

std::unique_ptr<Verb> make_simulate(CLI::App& parent) { return std::make_unique<Simulate>(parent); }

}  // namespace ballast
