// SPDX-License-Identifier: Apache-2.0
/// Seeds derived from names and numbers, so that randomness depends on the model and the step, never on the plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

/// Returns a well-mixed 64-bit seed from a seed and a name (XXH3 of the name, seeded). Same everywhere, always.
std::uint64_t derive_seed(std::uint64_t seed, std::string_view name) noexcept;

/// Returns a well-mixed 64-bit seed from a seed and a number.
std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) noexcept;

/// Returns the XXH3-128 of `text` as 32 hexadecimal digits; the fingerprint of values.
std::string fingerprint(std::string_view text);

}  // namespace ballast
