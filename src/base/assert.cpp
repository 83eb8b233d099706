// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/assert.hpp"

#include "ballast/base/error.hpp"

#include <string>

namespace ballast::detail {

void assertion_failed(char const* expression, char const* file, int line) {
  throw Error(ErrorKind::failed,
              std::string(file) + ":" + std::to_string(line) + ": assertion failed, a bug in Ballast: " + expression);
}

}  // namespace ballast::detail
