// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/checkpoint.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/base/units.hpp"
#include "ballast/plan/explain.hpp"
#include "ballast/report/text_table.hpp"
#include "verb.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

/// A step directory: its manifest, or what is wrong with it.
struct Step {
  std::filesystem::path directory;
  CheckpointInfo info;
  std::string fault;
};

/// Returns the committed steps below `directory`, oldest first; `directory` may be a step itself.
/// @throws InvalidArgument if there is none.
std::vector<Step> read_steps(std::filesystem::path const& directory) {
  std::vector<Step> steps;
  for (auto const& path : committed_steps(directory)) steps.push_back({path, {}, {}});
  if (steps.empty()) throw InvalidArgument(fmt::format("there is no checkpoint in {}", directory.string()));
  std::reverse(steps.begin(), steps.end());
  for (auto& step : steps) {
    try {
      step.info = read_manifest(step.directory);
    } catch (Error const& manifest_error) {
      step.fault = manifest_error.what();
    }
  }
  return steps;
}

std::int64_t num_elements(CheckpointTensor const& tensor) {
  std::int64_t result = 1;
  for (auto const extent : tensor.shape) result *= extent;
  return result;
}

/// "optimizer/block0" of "optimizer/block0/qkv.weight/exp_avg": what belongs together in a table.
std::string group_of(std::string const& name) { return name.substr(0, name.find('/', name.find('/') + 1)); }

std::string tensor_table(CheckpointInfo const& info) {
  struct Group {
    std::int64_t tensors = 0;
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
  };
  std::map<std::string, Group> groups;
  for (auto const& tensor : info.tensors) {
    auto& group = groups[group_of(tensor.name)];
    group.tensors += 1;
    group.elements += num_elements(tensor);
    group.bytes += num_elements(tensor) * size_of(tensor.type);
  }
  TextTable table({"tensors of step " + std::to_string(info.step), "number", "elements", "size"});
  for (auto const& [name, group] : groups) {
    table.add({name, std::to_string(group.tensors), std::to_string(group.elements), format_bytes(group.bytes)});
  }
  return table.text();
}

/// The first line of the explanation of the plan that wrote the step; empty if its metadata has none.
std::string plan_headline(CheckpointInfo const& info) {
  auto const source = (info.step_directory / "manifest.json").string();
  auto const metadata = parse_json(info.metadata, source);
  if (!metadata.is_object() || !metadata.contains("plan")) return {};
  auto const& stored = metadata["plan"];
  auto const text = explain(plan_from_json(stored.is_string() ? stored.get<std::string>() : stored.dump(), source));
  return text.substr(0, text.find('\n') + 1);
}

std::string to_text(std::vector<Step> const& steps) {
  TextTable table({"step", "files", "tensors", "size", "state"});
  Step const* newest = nullptr;
  for (auto const& step : steps) {
    if (!step.fault.empty()) {
      table.add({step.directory.filename().string(), "-", "-", "-", "damaged"});
      continue;
    }
    newest = &step;
    table.add({std::to_string(step.info.step), std::to_string(step.info.num_files),
               std::to_string(step.info.tensors.size()), format_bytes(step.info.num_bytes), "committed"});
  }
  auto result = table.text();
  if (newest != nullptr) result += "\n" + plan_headline(newest->info) + tensor_table(newest->info);
  return result;
}

nlohmann::ordered_json to_json(Step const& step) {
  nlohmann::ordered_json json = {{"directory", step.directory.string()}};
  if (!step.fault.empty()) {
    json["fault"] = step.fault;
    return json;
  }
  json["step"] = step.info.step;
  json["num_files"] = step.info.num_files;
  json["num_bytes"] = step.info.num_bytes;
  json["metadata"] = parse_json(step.info.metadata, step.directory.string());
  json["tensors"] = nlohmann::ordered_json::array();
  for (auto const& tensor : step.info.tensors) {
    json["tensors"].push_back({{"name", tensor.name}, {"dtype", to_string(tensor.type)}, {"shape", tensor.shape}});
  }
  return json;
}

class Inspect final : public Verb {
 public:
  explicit Inspect(CLI::App& parent) : Verb(parent, "inspect", "List steps, tensors and sizes") {
    app().add_option("DIR", directory_, "Checkpoint directory, or one step in it")->required();
  }

  int run(Environment& environment) override {
    if (environment.rank() != 0) return 0;
    auto const steps = read_steps(directory_);
    nlohmann::ordered_json json = {{"schema", "ballast.checkpoints/1"}, {"steps", nlohmann::ordered_json::array()}};
    for (auto const& step : steps) json["steps"].push_back(to_json(step));
    print(environment, json.dump(2) + "\n", to_text(steps));
    return 0;
  }

 private:
  std::filesystem::path directory_;
};

class VerifyCheckpoint final : public Verb {
 public:
  explicit VerifyCheckpoint(CLI::App& parent) : Verb(parent, "verify", "Check every hash of every committed step") {
    app().add_option("DIR", directory_, "Checkpoint directory, or one step in it")->required();
  }

  int run(Environment& environment) override {
    if (environment.rank() != 0) return 0;
    nlohmann::ordered_json json = {{"schema", "ballast.checkpoint_faults/1"},
                                   {"steps", nlohmann::ordered_json::array()}};
    std::string text;
    std::int64_t num_faults = 0;
    for (auto const& step : read_steps(directory_)) {
      auto const faults = step.fault.empty() ? verify_checkpoint(step.info) : std::vector<std::string>{step.fault};
      num_faults += std::ssize(faults);
      json["steps"].push_back({{"directory", step.directory.string()}, {"faults", faults}});
      text += fmt::format("{}: {}\n", step.directory.string(), faults.empty() ? "good" : "damaged");
      for (auto const& fault : faults) text += "  " + fault + "\n";
    }
    print(environment, json.dump(2) + "\n", text);
    if (num_faults > 0) throw DataError(fmt::format("{}: {} faults found", directory_.string(), num_faults));
    return 0;
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace

std::unique_ptr<Verb> make_checkpoint_inspect(CLI::App& checkpoint) { return std::make_unique<Inspect>(checkpoint); }
std::unique_ptr<Verb> make_checkpoint_verify(CLI::App& checkpoint) {
  return std::make_unique<VerifyCheckpoint>(checkpoint);
}

}  // namespace ballast
