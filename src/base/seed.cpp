// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/seed.hpp"

#include <array>
#include <cstddef>

#include <xxhash.h>

namespace ballast {

std::uint64_t derive_seed(std::uint64_t seed, std::string_view name) noexcept {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) noexcept {
  // Bytes in a fixed order: the result must not depend on the machine. The last byte keeps numbers apart from names,
  // because no text in UTF-8 contains 0xff.
  std::array<unsigned char, 9> bytes{};
  for (std::size_t byte = 0; byte < 8; ++byte) bytes[byte] = static_cast<unsigned char>(number >> (8 * byte));
  bytes[8] = 0xff;
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string fingerprint(std::string_view text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  constexpr char digits[] = "0123456789abcdef";
  std::string result;
  result.reserve(2 * sizeof(canonical.digest));
  for (unsigned char byte : canonical.digest) {
    result += digits[byte >> 4];
    result += digits[byte & 15];
  }
  return result;
}

}  // namespace ballast
