// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/units.hpp"

#include "ballast/base/error.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace ballast {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr double kKi = 1024.0;
constexpr Unit kBinaryBytes[] = {{"TiB", kKi* kKi* kKi* kKi}, {"GiB", kKi* kKi* kKi}, {"MiB", kKi* kKi}, {"KiB", kKi}};
constexpr Unit kTimes[] = {{"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
constexpr Unit kRates[] = {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}};

std::string three_digits(double value) {
  double const magnitude = std::abs(value);
  return fmt::format("{:.{}f}", value, magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0);
}

/// The largest unit of which there is one, after rounding; the last unit for anything smaller.
std::string in_largest_unit(double value, std::span<Unit const> units) {
  for (auto const& unit : units) {
    if (std::abs(value) >= 0.9995 * unit.scale || &unit == &units.back()) {
      return fmt::format("{} {}", three_digits(value / unit.scale), unit.name);
    }
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Quantity {
  double number = 0;
  std::optional<std::int64_t> whole;  ///< the number, when it is written as an integer and fits
  std::string_view unit;
};

/// Splits "1.5 GB" into number and unit; nothing if there is no number, or one that is negative or not finite.
std::optional<Quantity> split_quantity(std::string_view text) {
  text = trimmed(text);
  // from_chars would also take "inf", "nan" and a minus sign.
  if (text.empty() || !(text.front() == '.' || (text.front() >= '0' && text.front() <= '9'))) return {};
  char const* const end = text.data() + text.size();
  Quantity result;
  auto const parsed = std::from_chars(text.data(), end, result.number);
  if (parsed.ec != std::errc() || !std::isfinite(result.number)) return {};
  std::int64_t whole = 0;
  auto const parsed_whole = std::from_chars(text.data(), end, whole);
  if (parsed_whole.ec == std::errc() && parsed_whole.ptr == parsed.ptr) result.whole = whole;
  result.unit = trimmed(std::string_view(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr)));
  return result;
}

[[noreturn]] void refuse(char const* quantity, char const* example, std::string_view text) {
  throw InvalidArgument(fmt::format("{}: expected {}, found \"{}\"", quantity, example, text));
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
  return in_largest_unit(static_cast<double>(bytes), kBinaryBytes);
}

std::string format_seconds(double seconds) {
  if (seconds == 0 || !std::isfinite(seconds)) return fmt::format("{} s", seconds);
  // 90 s and 600 s read better than 1.50 min and 10.0 min.
  bool const is_long = std::abs(seconds) >= 999.5;
  return in_largest_unit(seconds, is_long ? std::span(kTimes) : std::span(kTimes).subspan(2));
}

std::string format_rate(double bytes_per_s) {
  if (bytes_per_s == 0 || !std::isfinite(bytes_per_s)) return fmt::format("{} B/s", bytes_per_s);
  return in_largest_unit(bytes_per_s, kRates);
}

std::int64_t parse_bytes(std::string_view text) {
  struct ByteUnit {
    std::string_view name;
    std::int64_t scale;
  };
  constexpr ByteUnit units[] = {{"", 1},
                                {"B", 1},
                                {"kB", 1000},
                                {"KB", 1000},
                                {"MB", 1000'000},
                                {"GB", 1000'000'000},
                                {"TB", 1000'000'000'000},
                                {"KiB", 1LL << 10},
                                {"MiB", 1LL << 20},
                                {"GiB", 1LL << 30},
                                {"TiB", 1LL << 40}};
  constexpr char const* example = "bytes such as \"4096\", \"64MiB\" or \"1.5 GB\" (below 8388608 TiB)";
  auto const quantity = split_quantity(text);
  if (!quantity) refuse("size", example, text);
  for (auto const& unit : units) {
    if (unit.name != quantity->unit) continue;
    if (quantity->whole) {
      std::int64_t bytes = 0;
      if (__builtin_mul_overflow(*quantity->whole, unit.scale, &bytes)) break;
      return bytes;
    }
    double const bytes = quantity->number * static_cast<double>(unit.scale);
    bool const fits = bytes < static_cast<double>(std::numeric_limits<std::int64_t>::max());
    if (unit.scale == 1 || !fits) break;  // there is no half byte
    return std::llround(bytes);
  }
  refuse("size", example, text);
}

double parse_seconds(std::string_view text) {
  constexpr char const* example = "a time such as \"5us\", \"1.5 ms\", \"10s\", \"3min\" or \"2h\"";
  auto const quantity = split_quantity(text);
  if (!quantity) refuse("time", example, text);
  if (quantity->unit.empty()) return quantity->number;
  for (auto const& unit : kTimes) {
    double const seconds = quantity->number * unit.scale;
    if (unit.name == quantity->unit && std::isfinite(seconds)) return seconds;
  }
  refuse("time", example, text);
}

double parse_rate(std::string_view text) {
  constexpr Unit prefixes[] = {{"", 1},
                               {"k", 1e3},
                               {"K", 1e3},
                               {"M", 1e6},
                               {"G", 1e9},
                               {"T", 1e12},
                               {"Ki", kKi},
                               {"Mi", kKi * kKi},
                               {"Gi", kKi * kKi * kKi},
                               {"Ti", kKi * kKi * kKi * kKi}};
  constexpr Unit things[] = {{"B/s", 1.0}, {"bit/s", 0.125}};
  auto const quantity = split_quantity(text);
  if (quantity && quantity->number > 0) {
    for (auto const& thing : things) {
      if (!quantity->unit.ends_with(thing.name)) continue;
      auto const prefix = quantity->unit.substr(0, quantity->unit.size() - thing.name.size());
      for (auto const& candidate : prefixes) {
        double const rate = quantity->number * candidate.scale * thing.scale;
        if (candidate.name == prefix && std::isfinite(rate) && rate > 0) return rate;
      }
    }
  }
  refuse("rate", "bytes per second above zero, such as \"10GB/s\", \"800 Mbit/s\" or \"1.5 GiB/s\"", text);
}

}  // namespace ballast
