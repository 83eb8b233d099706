// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/text_table.hpp"

#include "ballast/base/error.hpp"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(TextTable, AlignsTheFirstColumnLeftAndTheOthersRight) {
  TextTable table({"rank", "peak"});

  table.add({"0", "1.61 MiB"}).add({"10", "-"});

  EXPECT_EQ(table.text(),
            "rank      peak\n"
            "0     1.61 MiB\n"
            "10           -\n");
}

TEST(TextTable, HasNoBlanksAtTheEndsOfLines) {
  TextTable table({"a", "b"}, 2);

  table.add({"long", ""});

  EXPECT_EQ(table.text(), "a     b\nlong\n");
}

TEST(TextTable, RefusesARowOfAnotherLength) { EXPECT_THROW(TextTable({"a", "b"}).add({"1"}), Error); }

}  // namespace
}  // namespace ballast
