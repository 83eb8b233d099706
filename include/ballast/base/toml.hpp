// SPDX-License-Identifier: Apache-2.0
/// Strict reading of TOML files: every key is known, every type is checked, errors name file, line and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// A TOML table being read; remembers which keys were asked for, so that `finish` can refuse the others.
///
/// Example: `run.toml:4: [train] steps: expected an integer >= 1, found "many"` (an `InvalidArgument`).
/// A getter without fallback requires the key; a getter with one returns it when the key is absent.
class TomlTable {
 public:
  /// @throws InvalidArgument if the file is missing or is not TOML (with line and column).
  static TomlTable read(std::filesystem::path const& path);
  static TomlTable parse(std::string_view text, std::string const& source);

  TomlTable(TomlTable&&) noexcept;
  TomlTable& operator=(TomlTable&&) noexcept;
  ~TomlTable();

  bool has(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t minimum, std::optional<std::int64_t> fallback = {});
  /// A finite number (integer or float) >= minimum.
  double number(std::string_view key, double minimum, std::optional<double> fallback = {});
  bool flag(std::string_view key, std::optional<bool> fallback = {});
  std::string text(std::string_view key, std::optional<std::string> fallback = {});
  /// One of `choices`; the error lists them.
  std::string choice(std::string_view key, std::vector<std::string> const& choices,
                     std::optional<std::string> fallback = {});
  std::int64_t bytes(std::string_view key, std::optional<std::int64_t> fallback = {});   ///< integer or "64MiB"
  double seconds(std::string_view key, std::optional<double> fallback = {});             ///< number or "5us"
  double bytes_per_s(std::string_view key, std::optional<double> fallback = {});         ///< number or "10GB/s"
  std::vector<std::int64_t> integers(std::string_view key, std::optional<std::vector<std::int64_t>> fallback = {});
  std::vector<std::string> texts(std::string_view key, std::optional<std::vector<std::string>> fallback = {});
  std::optional<TomlTable> table(std::string_view key);    ///< nothing when the key is absent
  std::vector<TomlTable> tables(std::string_view key);     ///< an array of tables; empty when absent

  /// @throws InvalidArgument naming file, line and the first key that was never asked for, with the known keys.
  void finish() const;

  /// Returns "file:line: [table] key" of a key (of the table itself when the key is absent or empty).
  std::string where(std::string_view key) const;

  /// @throws InvalidArgument "where: expected ..., found ...".
  [[noreturn]] void fail(std::string_view key, std::string const& expectation) const;

 private:
  struct Impl;
  explicit TomlTable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast
