// SPDX-License-Identifier: Apache-2.0
#include "verb.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"

#include <iostream>

#include <CLI/CLI.hpp>

namespace ballast {

Verb::Verb(CLI::App& parent, std::string const& name, std::string const& description)
    : app_(parent.add_subcommand(name, description)) {
  app_->add_flag("--json", wants_json_, "Print JSON on stdout instead of text");
  app_->add_option("-o,--output", output_, "Write the JSON to this file")->type_name("FILE");
}

bool Verb::is_chosen() const { return app_->parsed(); }

void Verb::print(Environment& environment, std::string const& json, std::string const& text) const {
  if (environment.rank() != 0) return;
  if (!output_.empty()) write_file_atomically(output_, json);
  std::cout << (wants_json_ ? json : text) << std::flush;
  if (!std::cout) throw IoError("cannot write to stdout");
}

}  // namespace ballast
