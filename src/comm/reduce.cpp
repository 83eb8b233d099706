// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include "ballast/base/assert.hpp"

#include <algorithm>
#include <type_traits>

namespace ballast::detail {
namespace {

struct Bfloat16 {
  std::uint16_t bits;
};

template <class T>
auto load(T value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return bfloat16_to_float(value.bits);
  } else {
    return value;
  }
}

template <class T, class Accumulator>
T store(Accumulator value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return Bfloat16{float_to_bfloat16(value)};
  } else {
    return static_cast<T>(value);
  }
}

template <class T, class Combine>
void reduce_rows(std::span<void const* const> inputs, void* result, std::int64_t count, Combine const& combine) {
  using Accumulator = decltype(load(T{}));
  // Tile by tile: the partial results stay in the first-level cache, and `result` may be one of the inputs.
  constexpr std::int64_t tile_size = 1024;
  Accumulator tile[tile_size];
  for (std::int64_t begin = 0; begin < count; begin += tile_size) {
    auto const size = std::min(tile_size, count - begin);
    auto const* first = static_cast<T const*>(inputs[0]) + begin;
    for (std::int64_t element = 0; element < size; ++element) tile[element] = load(first[element]);
    for (auto const* input : inputs.subspan(1)) {
      auto const* row = static_cast<T const*>(input) + begin;
      for (std::int64_t element = 0; element < size; ++element) {
        tile[element] = static_cast<Accumulator>(combine(tile[element], load(row[element])));
      }
    }
    auto* out = static_cast<T*>(result) + begin;
    for (std::int64_t element = 0; element < size; ++element) out[element] = store<T>(tile[element]);
  }
}

template <class T>
void reduce_type(std::span<void const* const> inputs, void* result, std::int64_t count, ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::sum:
      return reduce_rows<T>(inputs, result, count, [](auto a, auto b) { return a + b; });
    case ReduceOperation::max:
      return reduce_rows<T>(inputs, result, count, [](auto a, auto b) { return a < b ? b : a; });
    case ReduceOperation::min:
      return reduce_rows<T>(inputs, result, count, [](auto a, auto b) { return b < a ? b : a; });
  }
}

}  // namespace

void reduce_in_rank_order(std::span<void const* const> inputs, void* result, std::int64_t count, DataType type,
                          ReduceOperation operation) {
  BALLAST_ASSERT(!inputs.empty());
  switch (type) {
    case DataType::uint8:
      return reduce_type<std::uint8_t>(inputs, result, count, operation);
    case DataType::int32:
      return reduce_type<std::int32_t>(inputs, result, count, operation);
    case DataType::int64:
      return reduce_type<std::int64_t>(inputs, result, count, operation);
    case DataType::bfloat16:
      return reduce_type<Bfloat16>(inputs, result, count, operation);
    case DataType::float32:
      return reduce_type<float>(inputs, result, count, operation);
    case DataType::float64:
      return reduce_type<double>(inputs, result, count, operation);
  }
}

}  // namespace ballast::detail
