// SPDX-License-Identifier: Apache-2.0
// The only file that includes spdlog (docs/design.md, dependencies).
#include "ballast/base/log.hpp"

#include "ballast/base/error.hpp"

#include <array>
#include <memory>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace ballast {
namespace {

struct NamedLevel {
  char const* name;
  LogLevel level;
  spdlog::level::level_enum spdlog_level;
};

constexpr std::array kLevels = {
    NamedLevel{"debug", LogLevel::debug, spdlog::level::debug},
    NamedLevel{"info", LogLevel::info, spdlog::level::info},
    NamedLevel{"warning", LogLevel::warning, spdlog::level::warn},
    NamedLevel{"error", LogLevel::error, spdlog::level::err},
    NamedLevel{"off", LogLevel::off, spdlog::level::off},
};

NamedLevel const& row(LogLevel level) {
  for (auto const& candidate : kLevels) {
    if (candidate.level == level) return candidate;
  }
  return kLevels[1];
}

/// Made at first use; a process has one stderr, hence one logger.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("ballast", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%v");
    made.set_level(spdlog::level::info);
    return made;
  }();
  return instance;
}

}  // namespace

void configure_log(LogLevel level, int rank) {
  auto least = row(level).spdlog_level;
  if (rank > 0 && level == LogLevel::info) least = spdlog::level::warn;
  logger().set_level(least);
  logger().set_pattern(rank < 0 ? "%v" : "[" + std::to_string(rank) + "] %v");
}

void log(LogLevel level, std::string_view message) {
  if (level == LogLevel::off) return;
  if (level >= LogLevel::warning) {  // plain progress reads better without its level
    logger().log(row(level).spdlog_level, "{}: {}", row(level).name, message);
  } else {
    logger().log(row(level).spdlog_level, "{}", message);
  }
}

LogLevel parse_log_level(std::string_view text) {
  for (auto const& candidate : kLevels) {
    if (text == candidate.name) return candidate.level;
  }
  throw InvalidArgument("log level: expected debug, info, warning, error or off, found \"" + std::string(text) + "\"");
}

}  // namespace ballast
