// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/data_type.hpp"

#include "ballast/base/error.hpp"

namespace ballast {
namespace {

struct Row {
  DataType type;
  char const* name;
  std::int64_t bytes;
};

constexpr Row kRows[] = {
    {DataType::uint8, "uint8", 1},       {DataType::int32, "int32", 4},     {DataType::int64, "int64", 8},
    {DataType::bfloat16, "bfloat16", 2}, {DataType::float32, "float32", 4}, {DataType::float64, "float64", 8},
};

}  // namespace

std::int64_t size_of(DataType type) noexcept {
  for (auto const& row : kRows) {
    if (row.type == type) return row.bytes;
  }
  return 0;
}

std::string to_string(DataType type) {
  for (auto const& row : kRows) {
    if (row.type == type) return row.name;
  }
  return "data type " + std::to_string(static_cast<int>(type));
}

DataType parse_data_type(std::string_view name) {
  std::string names;
  for (auto const& row : kRows) {
    if (row.name == name) return row.type;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw InvalidArgument("data type: expected one of " + names + ", found \"" + std::string(name) + "\"");
}

}  // namespace ballast
