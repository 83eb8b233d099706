// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/seed.hpp"

#include <bit>
#include <set>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// The values below are XXH3's as the xxhash package for Python computes them. They are part of the contract: models and
// data orders made with one version must be reproduced by the next.
TEST(Seed, OfANameIsTheSameForever) {
  EXPECT_EQ(derive_seed(0, "embed"), 10178611088519098377u);
  EXPECT_EQ(derive_seed(1, "embed"), 534724843890149053u);
  EXPECT_EQ(derive_seed(1, ""), 5604079703740606211u);
}

TEST(Seed, OfANumberIsTheSameForever) { EXPECT_EQ(derive_seed(7, std::uint64_t{3}), 1105467960780669724u); }

TEST(Seed, IsWellMixedForNeighbours) {
  std::set<std::uint64_t> seen;
  int changed_bits = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t number = 0; number < 1000; ++number) {
      seen.insert(derive_seed(seed, number));
      changed_bits += std::popcount(derive_seed(seed, number) ^ derive_seed(seed, number + 1));
    }
  }

  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_NEAR(changed_bits / 10000.0, 32.0, 0.5);
}

TEST(Fingerprint, IsXxh3Of128Bits) {
  EXPECT_EQ(fingerprint(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(fingerprint("ballast"), "63e5bc02cda073d52edd7c797db72850");
}

TEST(Fingerprint, ChangesWithEveryByte) {
  EXPECT_NE(fingerprint("plan 1"), fingerprint("plan 2"));
  EXPECT_NE(fingerprint(std::string("a\0b", 3)), fingerprint("a"));
}

}  // namespace
}  // namespace ballast
