// SPDX-License-Identifier: Apache-2.0
/// Columns of text, aligned for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ballast {

/// Rows of cells; the first column is aligned left, the others right, two blanks apart.
///
/// Example: `TextTable t({"rank", "peak"}); t.add({"0", "1.61 MiB"}); t.text()` is "rank      peak\n0     1.61 MiB\n".
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header, std::size_t num_left_columns = 1);

  /// @pre as many cells as the header has
  TextTable& add(std::vector<std::string> cells);
  /// Returns the table, one line per row, without blanks at the ends of lines.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t num_left_columns_;
};

}  // namespace ballast
