// SPDX-License-Identifier: Apache-2.0
/// Assertions are for programmers' errors, never for input; they stay on in release builds because they are cheap.
#pragma once

namespace ballast::detail {
[[noreturn]] void assertion_failed(char const* expression, char const* file, int line);
}

/// Throws `Error` (kind failed) naming expression, file and line when `expression` is false.
#define BALLAST_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : ::ballast::detail::assertion_failed(#expression, __FILE__, __LINE__))
