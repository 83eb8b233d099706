// SPDX-License-Identifier: Apache-2.0
/// Strict reading of JSON objects: every key is known, every type is checked, errors name source, path and expectation.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Parses `text`. @throws DataError naming `source`, line and column if it is not JSON.
nlohmann::json parse_json(std::string_view text, std::string const& source);

/// A JSON object being read; remembers which keys were asked for, so that `finish` can refuse the others.
///
/// Example: `JsonReader r(value, "plan.json"); r.schema("ballast.plan/1"); auto m = r.integer("num_micro_batches", 1);
/// r.finish();` throws `DataError: plan.json: /num_micro_batches: expected an integer >= 1, found "four"`.
class JsonReader {
 public:
  /// @throws DataError if `value` is not an object. `value` must outlive the reader.
  JsonReader(nlohmann::json const& value, std::string source, std::string path = "");

  /// Checks the "schema" key. @throws DataError if it is not exactly `expected`.
  void schema(std::string_view expected);

  bool has(std::string const& key) const;
  std::int64_t integer(std::string const& key, std::int64_t minimum = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t maximum = std::numeric_limits<std::int64_t>::max());
  /// A finite number >= minimum.
  double number(std::string const& key, double minimum = std::numeric_limits<double>::lowest());
  bool flag(std::string const& key);
  std::string text(std::string const& key);
  std::vector<std::int64_t> integers(std::string const& key);
  std::vector<std::string> texts(std::string const& key);
  JsonReader object(std::string const& key);
  std::vector<JsonReader> objects(std::string const& key);  ///< an array of objects

  /// @throws DataError naming the first key that was never asked for.
  void finish() const;

  /// @throws DataError "source: path/key: expected ..., found ...".
  [[noreturn]] void fail(std::string const& key, std::string const& expectation) const;

 private:
  nlohmann::json const& at(std::string const& key, char const* expectation);

  nlohmann::json const* value_;
  std::string source_;
  std::string path_;
  std::set<std::string> asked_;
};

}  // namespace ballast
