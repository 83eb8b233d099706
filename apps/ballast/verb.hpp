// SPDX-License-Identifier: Apache-2.0
/// A verb of the command `ballast`: its flags, and what it does.
#pragma once

#include "ballast/cluster/environment.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace ballast {

/// A verb registers itself with its flags in its constructor and runs after they were parsed.
class Verb {
 public:
  /// Every verb has --json and -o; CLI11 adds --help.
  Verb(CLI::App& parent, std::string const& name, std::string const& description);
  virtual ~Verb() = default;
  Verb(Verb const&) = delete;
  Verb& operator=(Verb const&) = delete;

  bool is_chosen() const;
  /// Returns the exit code. Collective over the job.
  virtual int run(Environment& environment) = 0;

 protected:
  CLI::App& app() { return *app_; }
  /// Rank 0 writes `json` to the file of -o, and `json` (--json) or `text` to stdout.
  void print(Environment& environment, std::string const& json, std::string const& text) const;

 private:
  CLI::App* app_;
  bool wants_json_ = false;
  std::filesystem::path output_;
};

std::unique_ptr<Verb> make_discover(CLI::App& parent);
std::unique_ptr<Verb> make_profile_collectives(CLI::App& profile);
std::unique_ptr<Verb> make_profile_model(CLI::App& profile);
std::unique_ptr<Verb> make_plan(CLI::App& parent);
std::unique_ptr<Verb> make_explain(CLI::App& parent);
std::unique_ptr<Verb> make_diff(CLI::App& parent);
std::unique_ptr<Verb> make_simulate(CLI::App& parent);
std::unique_ptr<Verb> make_train(CLI::App& parent);
std::unique_ptr<Verb> make_verify(CLI::App& parent);
std::unique_ptr<Verb> make_checkpoint_inspect(CLI::App& checkpoint);
std::unique_ptr<Verb> make_checkpoint_verify(CLI::App& checkpoint);
std::unique_ptr<Verb> make_doctor(CLI::App& parent);

}  // namespace ballast
