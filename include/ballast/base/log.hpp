// SPDX-License-Identifier: Apache-2.0
/// Human text on stderr. Takes finished strings, so that no header pulls in a formatting or logging library.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

enum class LogLevel { debug, info, warning, error, off };

/// Sets the least level that is printed and the rank that prefixes each line (-1: no prefix).
/// Ranks other than 0 print warnings and errors only, unless `level` is debug.
void configure_log(LogLevel level, int rank);

/// Prints one line to stderr if `level` is enabled; thread-safe.
void log(LogLevel level, std::string_view message);

/// Returns the level from "debug", "info", "warning", "error", "off". @throws InvalidArgument otherwise.
LogLevel parse_log_level(std::string_view text);

}  // namespace ballast
