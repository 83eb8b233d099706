// SPDX-License-Identifier: Apache-2.0
// The only file that includes toml++ (docs/design.md, dependencies).
#include "ballast/base/toml.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/units.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

namespace ballast {
namespace {

std::string shown(toml::node const& node) {
  if (auto const* text = node.as_string()) return fmt::format("\"{}\"", text->get());
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  std::ostringstream text;
  node.visit([&](auto const& value) {
    if constexpr (toml::is_value<decltype(value)>) text << value;
  });
  return text.str();
}

/// Runs a parser of units; nothing when it refuses the text.
template <class Result>
std::optional<Result> parsed(Result (*parse_text)(std::string_view), std::string const& text) {
  try {
    return parse_text(text);
  } catch (InvalidArgument const&) {
    return {};
  }
}

/// A number >= 0, or text that `parse_text` understands.
std::optional<double> as_quantity(toml::node const& node, double (*parse_text)(std::string_view)) {
  if (auto const* text = node.as_string()) return parsed(parse_text, text->get());
  auto const number = node.is_number() ? node.value<double>() : std::nullopt;
  return number && std::isfinite(*number) && *number >= 0 ? number : std::nullopt;
}

}  // namespace

struct TomlTable::Impl {
  // Shared by all tables of one file: a sub-table may outlive the table it was asked from, and copying toml++ nodes
  // loses their line numbers.
  std::shared_ptr<toml::table const> document;
  toml::table const* table = nullptr;
  std::string source;
  std::string name;  ///< "train" or "node.devices"; empty for the document
  std::set<std::string, std::less<>> asked;

  std::unique_ptr<Impl> child(toml::table const& inner, std::string_view key) const {
    auto const inner_name = name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
    return std::make_unique<Impl>(Impl{document, &inner, source, inner_name, {}});
  }

  toml::node const* ask(std::string_view key) {
    asked.emplace(key);
    return table->get(key);
  }
};

TomlTable::TomlTable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TomlTable::TomlTable(TomlTable&&) noexcept = default;
TomlTable& TomlTable::operator=(TomlTable&&) noexcept = default;
TomlTable::~TomlTable() = default;

TomlTable TomlTable::read(std::filesystem::path const& path) { return parse(read_file(path), path.string()); }

TomlTable TomlTable::parse(std::string_view text, std::string const& source) {
  try {
    auto document = std::make_shared<toml::table const>(toml::parse(text));
    auto const* table = document.get();
    return TomlTable(std::make_unique<Impl>(Impl{std::move(document), table, source, "", {}}));
  } catch (toml::parse_error const& error) {
    auto const& position = error.source().begin;
    throw InvalidArgument(
        fmt::format("{}:{}:{}: not TOML: {}", source, position.line, position.column, error.description()));
  }
}

bool TomlTable::has(std::string_view key) const { return impl_->table->contains(key); }

/// The shape of every getter: `convert` returns nothing when the value is not what `expectation` says.
/// The fallback replaces an absent key only, never a wrong one.
template <class Result, class Convert>
static Result value_or_fail(TomlTable const& table, toml::node const* node, std::string_view key,
                            std::string const& expectation, std::optional<Result> fallback, Convert const& convert) {
  if (node == nullptr && fallback) return *std::move(fallback);
  std::optional<Result> result;
  if (node != nullptr) result = convert(*node);
  if (!result) table.fail(key, expectation);
  return *std::move(result);
}

std::int64_t TomlTable::integer(std::string_view key, std::int64_t minimum, std::optional<std::int64_t> fallback) {
  bool const bounded = minimum != std::numeric_limits<std::int64_t>::min();
  auto const expectation = bounded ? fmt::format("an integer >= {}", minimum) : std::string("an integer");
  return value_or_fail(*this, impl_->ask(key), key, expectation, fallback,
                       [&](toml::node const& node) -> std::optional<std::int64_t> {
                         auto const* value = node.as_integer();
                         return value && value->get() >= minimum ? std::optional(value->get()) : std::nullopt;
                       });
}

double TomlTable::number(std::string_view key, double minimum, std::optional<double> fallback) {
  bool const bounded = minimum != std::numeric_limits<double>::lowest();
  auto const expectation = bounded ? fmt::format("a finite number >= {}", minimum) : std::string("a finite number");
  return value_or_fail(*this, impl_->ask(key), key, expectation, fallback,
                       [&](toml::node const& node) -> std::optional<double> {
                         auto const value = node.is_number() ? node.value<double>() : std::nullopt;
                         return value && std::isfinite(*value) && *value >= minimum ? value : std::nullopt;
                       });
}

bool TomlTable::flag(std::string_view key, std::optional<bool> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "true or false", fallback,
                       [](toml::node const& node) { return node.value_exact<bool>(); });
}

std::string TomlTable::text(std::string_view key, std::optional<std::string> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "text", std::move(fallback),
                       [](toml::node const& node) { return node.value_exact<std::string>(); });
}

std::string TomlTable::choice(std::string_view key, std::vector<std::string> const& choices,
                              std::optional<std::string> fallback) {
  auto const expectation = fmt::format("one of {}", fmt::join(choices, ", "));
  return value_or_fail(*this, impl_->ask(key), key, expectation, std::move(fallback), [&](toml::node const& node) {
    auto value = node.value_exact<std::string>();
    return value && std::find(choices.begin(), choices.end(), *value) != choices.end() ? value : std::nullopt;
  });
}

std::int64_t TomlTable::bytes(std::string_view key, std::optional<std::int64_t> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "bytes as an integer or text such as \"64MiB\"", fallback,
                       [](toml::node const& node) -> std::optional<std::int64_t> {
                         if (auto const* text = node.as_string()) return parsed(parse_bytes, text->get());
                         auto const* value = node.as_integer();
                         return value && value->get() >= 0 ? std::optional(value->get()) : std::nullopt;
                       });
}

double TomlTable::seconds(std::string_view key, std::optional<double> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "seconds as a number or text such as \"5us\"", fallback,
                       [](toml::node const& node) { return as_quantity(node, parse_seconds); });
}

double TomlTable::bytes_per_s(std::string_view key, std::optional<double> fallback) {
  return value_or_fail(*this, impl_->ask(key), key,
                       "bytes per second above zero as a number or text such as \"10GB/s\"", fallback,
                       [](toml::node const& node) {
                         auto const rate = as_quantity(node, parse_rate);
                         return rate && *rate > 0 ? rate : std::nullopt;
                       });
}

std::vector<std::int64_t> TomlTable::integers(std::string_view key, std::optional<std::vector<std::int64_t>> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "an array of integers", std::move(fallback),
                       [](toml::node const& node) -> std::optional<std::vector<std::int64_t>> {
                         auto const* array = node.as_array();
                         if (array == nullptr) return {};
                         std::vector<std::int64_t> result;
                         for (auto const& element : *array) {
                           auto const* value = element.as_integer();
                           if (value == nullptr) return {};
                           result.push_back(value->get());
                         }
                         return result;
                       });
}

std::vector<std::string> TomlTable::texts(std::string_view key, std::optional<std::vector<std::string>> fallback) {
  return value_or_fail(*this, impl_->ask(key), key, "an array of texts", std::move(fallback),
                       [](toml::node const& node) -> std::optional<std::vector<std::string>> {
                         auto const* array = node.as_array();
                         if (array == nullptr) return {};
                         std::vector<std::string> result;
                         for (auto const& element : *array) {
                           auto const* value = element.as_string();
                           if (value == nullptr) return {};
                           result.push_back(value->get());
                         }
                         return result;
                       });
}

std::optional<TomlTable> TomlTable::table(std::string_view key) {
  auto const* node = impl_->ask(key);
  if (node == nullptr) return {};
  if (!node->is_table()) fail(key, "a table");
  return TomlTable(impl_->child(*node->as_table(), key));
}

std::vector<TomlTable> TomlTable::tables(std::string_view key) {
  auto const* node = impl_->ask(key);
  std::vector<TomlTable> result;
  if (node == nullptr) return result;
  if (!node->is_array()) fail(key, "an array of tables");
  for (auto const& element : *node->as_array()) {
    if (!element.is_table()) fail(key, "an array of tables");
    result.push_back(TomlTable(impl_->child(*element.as_table(), key)));
  }
  return result;
}

void TomlTable::finish() const {
  for (auto const& [key, node] : *impl_->table) {
    if (!impl_->asked.contains(key.str())) {
      throw InvalidArgument(
          fmt::format("{}: unknown key; known here: {}", where(key.str()), fmt::join(impl_->asked, ", ")));
    }
  }
}

std::string TomlTable::where(std::string_view key) const {
  auto const* node = impl_->table->get(key);
  auto const line = (node != nullptr ? node->source() : impl_->table->source()).begin.line;
  auto place = fmt::format("{}:{}", impl_->source, std::max<std::uint32_t>(line, 1));
  if (!impl_->name.empty() || !key.empty()) place += ":";
  if (!impl_->name.empty()) place += fmt::format(" [{}]", impl_->name);
  if (!key.empty()) place += fmt::format(" {}", key);
  return place;
}

void TomlTable::fail(std::string_view key, std::string const& expectation) const {
  auto const* node = key.empty() ? nullptr : impl_->table->get(key);
  auto const found = node != nullptr ? shown(*node) : key.empty() ? "this table" : "nothing";
  throw InvalidArgument(fmt::format("{}: expected {}, found {}", where(key), expectation, found));
}

}  // namespace ballast
