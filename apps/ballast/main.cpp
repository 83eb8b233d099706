// SPDX-License-Identifier: Apache-2.0
// The command `ballast`: one file per verb.
#include "ballast/base/error.hpp"
#include "verb.hpp"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace ballast {
namespace {

std::vector<std::unique_ptr<Verb>> add_verbs(CLI::App& app) {
  std::vector<std::unique_ptr<Verb>> verbs;
  verbs.push_back(make_discover(app));
  auto* profile = app.add_subcommand("profile", "Measure collectives, or a model layer by layer");
  verbs.push_back(make_profile_collectives(*profile));
  verbs.push_back(make_profile_model(*profile));
  verbs.push_back(make_plan(app));
  verbs.push_back(make_explain(app));
  verbs.push_back(make_diff(app));
  verbs.push_back(make_simulate(app));
  verbs.push_back(make_train(app));
  verbs.push_back(make_verify(app));
  auto* checkpoint = app.add_subcommand("checkpoint", "Look at checkpoints");
  verbs.push_back(make_checkpoint_inspect(*checkpoint));
  verbs.push_back(make_checkpoint_verify(*checkpoint));
  verbs.push_back(make_doctor(app));
  return verbs;
}

/// Follows the leading words of the command line through the verbs. @throws InvalidArgument for a word that is no verb,
/// or where one is missing; CLI11 would call both "not expected" or "required".
void check_verb(CLI::App const& app, std::vector<std::string> const& arguments) {
  CLI::App const* at = &app;
  std::string command;
  for (auto argument = arguments.begin();; ++argument) {
    std::vector<std::string> known;
    for (auto const* verb : at->get_subcommands([](CLI::App const*) { return true; }))
      known.push_back(verb->get_name());
    if (known.empty()) return;
    auto const choices =
        fmt::format("{}expected one of {}", command.empty() ? "" : command + ": ", fmt::join(known, ", "));
    if (argument == arguments.end()) throw InvalidArgument(choices + ", found nothing; see ballast --help");
    if (argument->starts_with("-")) return;
    if (std::find(known.begin(), known.end(), *argument) == known.end()) {
      throw InvalidArgument(fmt::format("{}, found \"{}\"; see ballast --help", choices, *argument));
    }
    at = at->get_subcommand(*argument);
    command += (command.empty() ? "" : " ") + *argument;
  }
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// The innermost verb that was named, for the hint in a usage error.
std::string named_verb(CLI::App const& app) {
  std::string name = app.get_name();
  for (auto const* verb : app.get_subcommands()) name += " " + named_verb(*verb);
  return name;
}

int run_command(Environment& environment) {
  CLI::App app("Trains models on uneven MPI clusters, placing everything itself.", "ballast");
  app.set_version_flag("--version", "ballast " BALLAST_VERSION);
  app.require_subcommand(1);
  app.footer("Start under mpirun or srun, one rank per device. Every verb has --help, --json and -o FILE.");
  auto const verbs = add_verbs(app);
  app.get_subcommand("profile")->require_subcommand(1);
  app.get_subcommand("checkpoint")->require_subcommand(1);

  auto arguments = environment.arguments();
  check_verb(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (CLI::Success const& asked) {  // --help, --version
    if (environment.rank() == 0) app.exit(asked, std::cout, std::cerr);
    return 0;
  } catch (CLI::ParseError const& error) {
    throw InvalidArgument(fmt::format("{}; see {} --help", one_line(error.what()), named_verb(app)));
  }
  for (auto const& verb : verbs) {
    if (verb->is_chosen()) return verb->run(environment);
  }
  throw Error(ErrorKind::failed, "no verb took the command line");
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::run_main(argc, argv, ballast::run_command); }
