// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/json.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace ballast {
namespace {

using nlohmann::json;

/// A value as it stands in an error message: whole when short.
std::string shown(json const& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  constexpr std::size_t longest = 60;
  auto text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

std::string integer_expectation(std::int64_t minimum, std::int64_t maximum) {
  bool const has_minimum = minimum != std::numeric_limits<std::int64_t>::min();
  bool const has_maximum = maximum != std::numeric_limits<std::int64_t>::max();
  if (has_minimum && has_maximum) return fmt::format("an integer from {} to {}", minimum, maximum);
  if (has_minimum) return fmt::format("an integer >= {}", minimum);
  if (has_maximum) return fmt::format("an integer <= {}", maximum);
  return "an integer";
}

/// True when `value` is an integer that int64 can hold.
bool is_int64(json const& value) {
  if (value.is_number_unsigned()) {
    return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  }
  return value.is_number_integer();
}

}  // namespace

json parse_json(std::string_view text, std::string const& source) {
  // nlohmann keeps the last of two equal keys in silence; a hand-edited plan must not lose a line like that.
  std::vector<std::set<std::string>> keys_of_open_objects;
  auto const refuse_repeated_keys = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) keys_of_open_objects.pop_back();
    if (event == json::parse_event_t::key && !keys_of_open_objects.back().insert(parsed.get<std::string>()).second) {
      throw DataError(fmt::format("{}: the key {} stands twice in one object", source, parsed.dump()));
    }
    return true;
  };
  try {
    return json::parse(text, refuse_repeated_keys);
  } catch (json::parse_error const& error) {
    auto const before = text.substr(0, std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()));
    auto const line = 1 + std::count(before.begin(), before.end(), '\n');
    auto const column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 == 0: the first line
    std::string_view reason = error.what();
    if (auto const at = reason.find(": "); at != reason.npos) reason.remove_prefix(at + 2);
    throw DataError(fmt::format("{}:{}:{}: not JSON: {}", source, line, column, reason));
  } catch (json::exception const& error) {  // a number beyond double
    throw DataError(fmt::format("{}: not JSON: {}", source, error.what()));
  }
}

JsonReader::JsonReader(json const& value, std::string source, std::string path)
    : value_(&value), source_(std::move(source)), path_(std::move(path)) {
  if (!value.is_object()) {
    throw DataError(
        fmt::format("{}: {}expected an object, found {}", source_, path_.empty() ? "" : path_ + ": ", shown(value)));
  }
}

void JsonReader::schema(std::string_view expected) {
  if (text("schema") != expected) fail("schema", fmt::format("\"{}\"", expected));
}

bool JsonReader::has(std::string const& key) const { return value_->contains(key); }

std::int64_t JsonReader::integer(std::string const& key, std::int64_t minimum, std::int64_t maximum) {
  auto const expectation = integer_expectation(minimum, maximum);
  auto const& value = at(key, expectation.c_str());
  if (!is_int64(value)) fail(key, expectation);
  auto const result = value.get<std::int64_t>();
  if (result < minimum || result > maximum) fail(key, expectation);
  return result;
}

double JsonReader::number(std::string const& key, double minimum) {
  auto const expectation = minimum == std::numeric_limits<double>::lowest()
                               ? std::string("a finite number")
                               : fmt::format("a finite number >= {}", minimum);
  auto const& value = at(key, expectation.c_str());
  if (!value.is_number()) fail(key, expectation);
  auto const result = value.get<double>();
  if (!std::isfinite(result) || result < minimum) fail(key, expectation);
  return result;
}

bool JsonReader::flag(std::string const& key) {
  auto const& value = at(key, "true or false");
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

std::string JsonReader::text(std::string const& key) {
  auto const& value = at(key, "text");
  if (!value.is_string()) fail(key, "text");
  return value.get<std::string>();
}

std::vector<std::int64_t> JsonReader::integers(std::string const& key) {
  auto const& value = at(key, "an array of integers");
  if (!value.is_array()) fail(key, "an array of integers");
  std::vector<std::int64_t> result;
  for (auto const& element : value) {
    if (!is_int64(element)) {
      throw DataError(fmt::format("{}: {}/{}/{}: expected an integer, found {}", source_, path_, key, result.size(),
                                  shown(element)));
    }
    result.push_back(element.get<std::int64_t>());
  }
  return result;
}

std::vector<std::string> JsonReader::texts(std::string const& key) {
  auto const& value = at(key, "an array of texts");
  if (!value.is_array()) fail(key, "an array of texts");
  std::vector<std::string> result;
  for (auto const& element : value) {
    if (!element.is_string()) {
      throw DataError(
          fmt::format("{}: {}/{}/{}: expected text, found {}", source_, path_, key, result.size(), shown(element)));
    }
    result.push_back(element.get<std::string>());
  }
  return result;
}

JsonReader JsonReader::object(std::string const& key) {
  return JsonReader(at(key, "an object"), source_, fmt::format("{}/{}", path_, key));
}

std::vector<JsonReader> JsonReader::objects(std::string const& key) {
  auto const& value = at(key, "an array of objects");
  if (!value.is_array()) fail(key, "an array of objects");
  std::vector<JsonReader> result;
  for (auto const& element : value) {
    result.emplace_back(element, source_, fmt::format("{}/{}/{}", path_, key, result.size()));
  }
  return result;
}

void JsonReader::finish() const {
  for (auto const& [key, value] : value_->items()) {
    if (!asked_.contains(key)) {
      throw DataError(fmt::format("{}: {}/{}: unknown key; known here: {}", source_, path_, key,
                                  fmt::join(asked_.begin(), asked_.end(), ", ")));
    }
  }
}

void JsonReader::fail(std::string const& key, std::string const& expectation) const {
  auto const place = key.empty() ? path_ : fmt::format("{}/{}", path_, key);
  auto const found = key.empty() ? shown(*value_) : value_->contains(key) ? shown((*value_)[key]) : "nothing";
  throw DataError(
      fmt::format("{}: {}{}expected {}, found {}", source_, place, place.empty() ? "" : ": ", expectation, found));
}

json const& JsonReader::at(std::string const& key, char const* expectation) {
  asked_.insert(key);
  if (!value_->contains(key)) fail(key, expectation);
  return (*value_)[key];
}

}  // namespace ballast
