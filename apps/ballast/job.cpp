// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"

#include <cstdlib>
#include <functional>
#include <system_error>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ballast {
namespace {

/// Runs `work` on rank 0; what it throws, all ranks throw. Collective over the job.
void on_root(Environment& environment, std::function<void()> const& work) {
  collectively(environment.world(), [&] {
    if (environment.rank() == 0) work();
  });
}

}  // namespace

void use_cluster(Environment& environment, std::filesystem::path const& path) {
  auto file = path;
  if (char const* variable = std::getenv("BALLAST_CLUSTER"); file.empty() && variable != nullptr) file = variable;
  if (file.empty()) return;
  if (environment.size() == 1 && !launched_by_mpi()) {
    if (int const needed = read_cluster_file(file).num_ranks(); needed != 1) {
      throw InvalidArgument(fmt::format("{} describes {} devices, one rank each: start with mpirun -n {} ballast ...",
                                        file.string(), needed, needed));
    }
  }
  environment.use_cluster(file);
}

std::optional<std::string> read_if_exists(Environment& environment, std::filesystem::path const& path) {
  std::string text;
  std::string exists;
  on_root(environment, [&] {
    std::error_code none;
    if (!std::filesystem::exists(path, none)) return;
    text = read_file(path);
    exists = "yes";
  });
  if (broadcast_text(environment.world(), exists, 0).empty()) return {};
  return broadcast_text(environment.world(), std::move(text), 0);
}

std::string read_on_root(Environment& environment, std::filesystem::path const& path) {
  std::string text;
  on_root(environment, [&] { text = read_file(path); });
  return broadcast_text(environment.world(), std::move(text), 0);
}

void make_directory(Environment& environment, std::filesystem::path const& path) {
  on_root(environment, [&] {
    std::error_code error;
    if (std::filesystem::create_directories(path, error)) {
      std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
    }
    if (error) throw IoError(fmt::format("cannot make the folder {}: {}", path.string(), error.message()));
  });
}

void write_on_root(Environment& environment, std::filesystem::path const& path, std::string const& content) {
  on_root(environment, [&] { write_file_atomically(path, content); });
}

RunArguments::RunArguments(CLI::App& app, bool is_required) {
  app.add_option("RUN.toml", file_, "What to train, on what, how (docs/formats.md)")->required(is_required);
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [this](std::vector<std::string> const& texts) {
           for (auto const& text : texts) {
             auto const equals = text.find('=');
             if (equals == text.npos) throw CLI::ValidationError("--set: expected section.key=value, found " + text);
             overrides_.push_back({text.substr(0, equals), text.substr(equals + 1), "--set " + text.substr(0, equals)});
           }
         },
         "Set a key of RUN.toml: section.key=value")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_flag("--show-config", shows_only_, "Print every setting with its origin and do nothing else");
  add_short(app, "--cluster", "cluster.file", "Behave as the cluster that this file describes");
}

void RunArguments::add_short(CLI::App& app, std::string const& flag, std::string const& key,
                             std::string const& description) {
  app.add_option_function<std::string>(
         flag,
         [this, flag, key](std::string const& value) {
           overrides_.push_back({key, value, flag});
         },
         description)
      ->type_name("VALUE");
}

Settings RunArguments::settings() const { return {file_, run_sections(), overrides_}; }

void start_run(Environment& environment, Settings const& settings, RunConfig const& config) {
  configure_log(config.log_level, environment.rank() == 0 ? -1 : environment.rank());
  at::set_num_threads(1);  // ranks are the parallelism; threads of one rank would take the others' cores
  use_cluster(environment, config.cluster_file);
  auto& world = environment.world();
  auto const mine = settings.values().dump();
  auto const expected = broadcast_text(world, mine, 0);
  collectively(world, [&] {
    if (mine == expected) return;
    throw InvalidArgument(
        fmt::format("rank {} has other settings than rank 0: give all ranks the same RUN.toml and BALLAST_* variables",
                    environment.rank()));
  });
}

}  // namespace ballast
