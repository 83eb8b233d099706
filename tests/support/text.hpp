// SPDX-License-Identifier: Apache-2.0
/// Texts with one thing changed, for tests of readers.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace ballast::test {

/// Returns `text` with the first `old` replaced; a text without it fails the test.
inline std::string replaced(std::string text, std::string const& old, std::string const& by) {
  auto const at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), by);
}

}  // namespace ballast::test
