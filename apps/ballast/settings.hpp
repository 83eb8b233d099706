// SPDX-License-Identifier: Apache-2.0
/// The values of a RUN.toml as they apply: flag > BALLAST_<SECTION>_<KEY> > file > default, each with its origin.
#pragma once

#include "ballast/base/toml.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ballast {

/// A value given outside of the file, as TOML or as bare text: {"train.steps", "50", "--steps"}.
struct Override {
  std::string key;
  std::string value;
  std::string origin;
};

/// Reads values by "section.key". A getter without fallback requires the key. Every source is read, also one that is
/// overridden, so a wrong value is never hidden. Errors name file and line, the variable or the flag.
class Settings {
 public:
  /// An empty path: no file. @throws InvalidArgument if the file is missing, is not TOML or has an unknown section.
  Settings(std::filesystem::path file, std::vector<std::string> const& sections, std::vector<Override> const& flags);

  std::int64_t integer(std::string const& key, std::int64_t minimum, std::optional<std::int64_t> fallback = {});
  double number(std::string const& key, double minimum, std::optional<double> fallback = {});
  bool flag(std::string const& key, std::optional<bool> fallback = {});
  std::string text(std::string const& key, std::optional<std::string> fallback = {});
  std::string choice(std::string const& key, std::vector<std::string> const& choices,
                     std::optional<std::string> fallback = {});
  double seconds(std::string const& key, std::optional<double> fallback = {});
  double share(std::string const& key, std::optional<double> fallback = {});  ///< a number in [0, 1) or "5%"
  std::vector<std::int64_t> integers(std::string const& key, std::optional<std::vector<std::int64_t>> fallback = {});
  std::vector<std::string> texts(std::string const& key, std::optional<std::vector<std::string>> fallback = {});
  /// A path; a relative one counts from the file's folder when the file (or the default) says it, else from here.
  std::filesystem::path path(std::string const& key, std::optional<std::string> fallback = {});
  std::vector<std::filesystem::path> paths(std::string const& key);

  /// @throws InvalidArgument for keys of the file and flags that nobody asked for; warns of such variables.
  void finish() const;

  /// Returns "run.toml:12", "BALLAST_TRAIN_STEPS", "--steps" or "default". @pre the key was asked for
  std::string const& origin(std::string const& key) const { return values_.at(key).origin; }
  /// @throws InvalidArgument "origin: [section] key: expected ..., found ...". @pre the key was asked for
  [[noreturn]] void fail(std::string const& key, std::string const& expectation) const;

  /// All values asked for as {section: {key: value}}.
  nlohmann::ordered_json values() const;
  /// All values with their origins as {section: {key: {value, origin}}}.
  nlohmann::ordered_json origins() const;
  /// All values as a RUN.toml, each with its origin in a comment.
  std::string toml() const;

 private:
  struct Source {
    Override given;
    TomlTable table;  ///< the section, holding one key
    bool is_flag = true;
  };
  struct Value {
    nlohmann::ordered_json value;
    std::string origin;
  };

  void add_source(Override given, bool is_flag);
  template <class Result, class Get>
  Result read(std::string const& key, std::optional<Result> fallback, Get const& get);
  std::filesystem::path resolved(std::string const& key, std::filesystem::path const& path) const;

  std::filesystem::path file_;
  std::vector<std::string> sections_;        ///< in the order of documentation
  std::map<std::string, TomlTable> tables_;  ///< of the file, by section
  std::vector<Source> sources_;              ///< later ones override earlier ones
  std::map<std::string, Value> values_;      ///< by "section.key"
  std::vector<std::string> order_;           ///< keys as they were asked for
};

}  // namespace ballast
