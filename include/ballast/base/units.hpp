// SPDX-License-Identifier: Apache-2.0
/// Bytes, seconds and rates as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

/// Returns bytes as text with binary units and three significant digits: 1536 -> "1.50 KiB".
std::string format_bytes(std::int64_t bytes);

/// Returns seconds as text: 0.0123 -> "12.3 ms".
std::string format_seconds(double seconds);

/// Returns a rate as text with decimal units: 1.5e9 -> "1.50 GB/s".
std::string format_rate(double bytes_per_s);

/// Returns bytes from "64MiB", "1.5 GB", "4096" (units B, kB/KB, KiB, MB, MiB, GB, GiB, TB, TiB).
/// @throws InvalidArgument for anything else, negative or beyond int64.
std::int64_t parse_bytes(std::string_view text);

/// Returns seconds from "5us", "1.5 ms", "10s", "3min", "2h" (a bare number is seconds).
/// @throws InvalidArgument for anything else or negative.
double parse_seconds(std::string_view text);

/// Returns bytes per second from "10GB/s", "800 Mbit/s", "1.5 GiB/s" (decimal and binary units, bits by "bit").
/// @throws InvalidArgument for anything else or not above zero.
double parse_rate(std::string_view text);

}  // namespace ballast
