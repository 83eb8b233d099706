// SPDX-License-Identifier: Apache-2.0
#include "ballast/report/text_table.hpp"

#include "ballast/base/assert.hpp"

#include <algorithm>
#include <utility>

namespace ballast {

TextTable::TextTable(std::vector<std::string> header, std::size_t num_left_columns)
    : rows_{std::move(header)}, num_left_columns_(num_left_columns) {}

TextTable& TextTable::add(std::vector<std::string> cells) {
  BALLAST_ASSERT(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
  return *this;
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (auto const& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string result;
  for (auto const& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      if (column > 0) line += "  ";
      std::string const padding(widths[column] - row[column].size(), ' ');
      line += column < num_left_columns_ ? row[column] + padding : padding + row[column];
    }
    result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return result;
}

}  // namespace ballast
