// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <unistd.h>

namespace ballast {
namespace {

struct Key {
  std::string section;
  std::string name;
};

Key split(std::string const& key) {
  auto const dot = key.find('.');
  if (dot == key.npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The variables that stand for keys of `sections`. BALLAST_CLUSTER is short for BALLAST_CLUSTER_FILE.
std::vector<Override> read_environment(std::vector<std::string> const& sections) {
  std::vector<Override> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string const text = *entry;
    auto const equals = text.find('=');
    auto const name = text.substr(0, equals);
    if (equals == text.npos || equals + 1 == text.size()) continue;
    if (name == "BALLAST_CLUSTER") result.push_back({"cluster.file", text.substr(equals + 1), name});
    for (auto const& section : sections) {
      auto const prefix = "BALLAST_" + upper(section) + "_";
      if (name.starts_with(prefix)) {
        result.push_back({section + "." + lower(name.substr(prefix.size())), text.substr(equals + 1), name});
      }
    }
  }
  return result;
}

double parse_share(TomlTable& table, std::string_view key, std::optional<double> fallback) {
  if (!table.has(key)) return table.number(key, 0.0, fallback);
  double result = -1;
  try {
    result = table.number(key, 0.0);
  } catch (InvalidArgument const&) {
    auto const text = table.text(key);
    std::size_t end = 0;
    try {
      result = std::stod(text, &end) / 100;
    } catch (std::exception const&) {
    }
    if (text.substr(end) != "%") result = -1;
  }
  if (!(result >= 0 && result < 1)) table.fail(key, "a share in [0, 1), such as 0.05 or \"5%\"");
  return result;
}

}  // namespace

Settings::Settings(std::filesystem::path file, std::vector<std::string> const& sections,
                   std::vector<Override> const& flags)
    : file_(std::move(file)), sections_(sections) {
  auto const source = file_.empty() ? std::string("command line") : file_.string();
  auto document = file_.empty() ? TomlTable::parse("", source) : TomlTable::read(file_);
  for (auto const& section : sections_) {
    auto table = document.table(section);
    // An absent section is an empty one, so that required keys are missed by name.
    if (!table) table = TomlTable::parse("[" + section + "]", source).table(section);
    tables_.emplace(section, *std::move(table));
  }
  document.finish();
  for (auto& given : read_environment(sections_)) add_source(std::move(given), false);
  for (auto const& given : flags) add_source(given, true);
}

void Settings::add_source(Override given, bool is_flag) {
  auto const key = split(given.key);
  if (std::find(sections_.begin(), sections_.end(), key.section) == sections_.end() || key.name.empty()) {
    throw InvalidArgument(fmt::format("{}: expected section.key=value with a section of {}, found \"{}\"", given.origin,
                                      fmt::join(sections_, ", "), given.key));
  }
  // A bare word needs no quotes here: what is not TOML is text.
  auto const parse = [&](std::string const& value) {
    return TomlTable::parse(given.key + " = " + value, given.origin).table(key.section);
  };
  std::optional<TomlTable> table;
  try {
    table = parse(given.value);
  } catch (InvalidArgument const&) {
    table = parse(nlohmann::json(given.value).dump());
  }
  if (!table) throw InvalidArgument(fmt::format("{}: \"{}\" is no key", given.origin, given.key));
  sources_.push_back({std::move(given), *std::move(table), is_flag});
}

template <class Result, class Get>
Result Settings::read(std::string const& key, std::optional<Result> fallback, Get const& get) {
  auto const [section, name] = split(key);
  auto& table = tables_.at(section);
  auto const is_overridden =
      std::any_of(sources_.begin(), sources_.end(), [&](Source const& source) { return source.given.key == key; });
  if (is_overridden && !fallback) fallback = Result{};  // the file may be silent then
  Result result = get(table, name, fallback);
  std::string origin = "default";
  if (table.has(name)) origin = table.where(name).substr(0, table.where(name).find(": ["));
  for (auto& source : sources_) {
    if (source.given.key != key) continue;
    result = get(source.table, name, std::optional<Result>());
    origin = source.given.origin;
  }
  if (values_.insert_or_assign(key, Value{result, origin}).second) order_.push_back(key);
  return result;
}

std::int64_t Settings::integer(std::string const& key, std::int64_t minimum, std::optional<std::int64_t> fallback) {
  return read(key, fallback, [&](TomlTable& table, auto const& name, auto const& value) {
    return table.integer(name, minimum, value);
  });
}

double Settings::number(std::string const& key, double minimum, std::optional<double> fallback) {
  return read(key, fallback, [&](TomlTable& table, auto const& name, auto const& value) {
    return table.number(name, minimum, value);
  });
}

bool Settings::flag(std::string const& key, std::optional<bool> fallback) {
  return read(key, fallback,
              [](TomlTable& table, auto const& name, auto const& value) { return table.flag(name, value); });
}

std::string Settings::text(std::string const& key, std::optional<std::string> fallback) {
  return read(key, std::move(fallback),
              [](TomlTable& table, auto const& name, auto const& value) { return table.text(name, value); });
}

std::string Settings::choice(std::string const& key, std::vector<std::string> const& choices,
                             std::optional<std::string> fallback) {
  return read(key, std::move(fallback), [&](TomlTable& table, auto const& name, auto const& value) {
    return table.choice(name, choices, value);
  });
}

double Settings::seconds(std::string const& key, std::optional<double> fallback) {
  return read(key, fallback,
              [](TomlTable& table, auto const& name, auto const& value) { return table.seconds(name, value); });
}

double Settings::share(std::string const& key, std::optional<double> fallback) {
  return read(key, fallback, parse_share);
}

std::vector<std::int64_t> Settings::integers(std::string const& key,
                                             std::optional<std::vector<std::int64_t>> fallback) {
  return read(key, std::move(fallback),
              [](TomlTable& table, auto const& name, auto const& value) { return table.integers(name, value); });
}

std::vector<std::string> Settings::texts(std::string const& key, std::optional<std::vector<std::string>> fallback) {
  return read(key, std::move(fallback),
              [](TomlTable& table, auto const& name, auto const& value) { return table.texts(name, value); });
}

std::filesystem::path Settings::path(std::string const& key, std::optional<std::string> fallback) {
  return resolved(key, text(key, std::move(fallback)));
}

std::vector<std::filesystem::path> Settings::paths(std::string const& key) {
  std::vector<std::filesystem::path> result;
  for (auto const& text : texts(key)) result.push_back(resolved(key, text));
  return result;
}

std::filesystem::path Settings::resolved(std::string const& key, std::filesystem::path const& path) const {
  bool const is_overridden =
      std::any_of(sources_.begin(), sources_.end(), [&](Source const& source) { return source.given.key == key; });
  return path.empty() || is_overridden ? path : (file_.parent_path() / path).lexically_normal();
}

void Settings::finish() const {
  for (auto const& [section, table] : tables_) table.finish();
  for (auto const& source : sources_) {
    if (values_.contains(source.given.key)) continue;
    auto const section = split(source.given.key).section;
    std::vector<std::string> known;
    for (auto const& key : order_) {
      if (split(key).section == section) known.push_back(split(key).name);
    }
    if (known.empty() && !source.is_flag) continue;
    auto const message = known.empty() ? fmt::format("{}: [{}] is not used here", source.given.origin, section)
                                       : fmt::format("{}: [{}] has no key {}; known here: {}", source.given.origin,
                                                     section, split(source.given.key).name, fmt::join(known, ", "));
    if (source.is_flag) throw InvalidArgument(message);
    log(LogLevel::warning, message);  // may be meant for something else
  }
}

void Settings::fail(std::string const& key, std::string const& expectation) const {
  auto const& value = values_.at(key);
  throw InvalidArgument(fmt::format("{}: [{}] {}: expected {}, found {}", value.origin, split(key).section,
                                    split(key).name, expectation, value.value.dump()));
}

nlohmann::ordered_json Settings::values() const {
  nlohmann::ordered_json result;
  for (auto const& key : order_) result[split(key).section][split(key).name] = values_.at(key).value;
  return result;
}

nlohmann::ordered_json Settings::origins() const {
  nlohmann::ordered_json result;
  for (auto const& key : order_) {
    auto const& value = values_.at(key);
    result[split(key).section][split(key).name] = {{"value", value.value}, {"origin", value.origin}};
  }
  return result;
}

std::string Settings::toml() const {
  std::string result;
  auto const all = origins();
  for (auto const& [section, keys] : all.items()) {
    result += fmt::format("{}[{}]\n", result.empty() ? "" : "\n", section);
    for (auto const& [name, value] : keys.items()) {
      auto const line = fmt::format("{} = {}", name, value["value"].dump());
      result += fmt::format("{:<40} # {}\n", line, value["origin"].get<std::string>());
    }
  }
  return result;
}

}  // namespace ballast
