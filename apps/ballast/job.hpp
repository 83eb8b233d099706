// SPDX-License-Identifier: Apache-2.0
/// What verbs do on all ranks of a job together: the cluster file, and files that only rank 0 reads and writes.
#pragma once

#include "ballast/cluster/environment.hpp"
#include "run_config.hpp"
#include "settings.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ballast {

/// Makes the job behave as the described cluster; an empty path is BALLAST_CLUSTER, or the machine as it is.
/// Collective over the job. @throws InvalidArgument, which says how to start when the number of ranks is wrong.
void use_cluster(Environment& environment, std::filesystem::path const& path);

/// Returns the file as rank 0 reads it, or nothing if it does not exist there. Collective over the job.
/// @throws IoError on all ranks.
std::optional<std::string> read_if_exists(Environment& environment, std::filesystem::path const& path);
/// Returns the file as rank 0 reads it. Collective over the job. @throws InvalidArgument, IoError on all ranks.
std::string read_on_root(Environment& environment, std::filesystem::path const& path);

/// Rank 0 makes the folder with mode 0700 if it is not there. Collective over the job. @throws IoError on all ranks.
void make_directory(Environment& environment, std::filesystem::path const& path);
/// Rank 0 writes the file with mode 0600. Collective over the job. @throws IoError on all ranks.
void write_on_root(Environment& environment, std::filesystem::path const& path, std::string const& content);

/// RUN.toml and its overrides on the command line.
class RunArguments {
 public:
  RunArguments(CLI::App& app, bool is_required);
  RunArguments(RunArguments const&) = delete;  // flags refer to it
  RunArguments& operator=(RunArguments const&) = delete;
  /// Adds a flag that stands for a key, such as --steps for train.steps.
  void add_short(CLI::App& app, std::string const& flag, std::string const& key, std::string const& description);

  bool has_file() const { return !file_.empty(); }
  bool shows_only() const { return shows_only_; }  ///< --show-config
  /// Local. @throws InvalidArgument.
  Settings settings() const;

 private:
  std::filesystem::path file_;
  std::vector<Override> overrides_;
  bool shows_only_ = false;
};

/// Sets log and threads, starts the cluster, and checks that all ranks have the same settings.
/// Collective over the job. @throws InvalidArgument on all ranks.
void start_run(Environment& environment, Settings const& settings, RunConfig const& config);

}  // namespace ballast
