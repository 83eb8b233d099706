// SPDX-License-Identifier: Apache-2.0
/// The element types that travel between ranks and stand in profiles, plans and files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

enum class DataType : std::int32_t { uint8, int32, int64, bfloat16, float32, float64 };

std::int64_t size_of(DataType type) noexcept;  ///< bytes of one element
std::string to_string(DataType type);          ///< "float32"
/// @throws InvalidArgument listing the names.
DataType parse_data_type(std::string_view name);

/// The `DataType` of a C++ type; bfloat16 has none and goes through the untyped calls.
template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType value = DataType::uint8;
};
template <>
struct DataTypeOf<char> {
  static constexpr DataType value = DataType::uint8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType value = DataType::int32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr DataType value = DataType::int64;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::float32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::float64;
};

}  // namespace ballast
