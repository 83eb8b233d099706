// SPDX-License-Identifier: Apache-2.0
/// Tensors of all kinds whose elements follow from their name and number, so that any program can check them.
#pragma once

#include "ballast/checkpoint/checkpoint.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

namespace ballast::test {

inline std::vector<CheckpointTensor> example_tensors() {
  return {
      {"block0/attention/bias", {13}, DataType::float64},
      {"block0/weight", {5, 7}, DataType::float32},
      {"counts", {4}, DataType::int32},
      {"embed.weight", {3, 2, 2}, DataType::bfloat16},
      {"empty", {0, 3}, DataType::float32},
      {"größe ⚓ [x]", {3}, DataType::float32},
      {"mask", {6}, DataType::uint8},
      {"step", {}, DataType::int64},
  };
}

inline std::int64_t elements_of(CheckpointTensor const& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Small enough for bfloat16 and uint8: (7 element + bytes of the name) mod 120.
inline std::int64_t example_value(std::string const& name, std::int64_t element) {
  return (7 * element + std::ssize(name)) % 120;
}

/// Writes the bytes of one element.
inline void put_value(DataType type, std::int64_t value, char* target) {
  auto const put = [&](auto number) { std::memcpy(target, &number, sizeof(number)); };
  switch (type) {
    case DataType::uint8:
      put(static_cast<std::uint8_t>(value));
      break;
    case DataType::int32:
      put(static_cast<std::int32_t>(value));
      break;
    case DataType::int64:
      put(value);
      break;
    case DataType::float32:
      put(static_cast<float>(value));
      break;
    case DataType::float64:
      put(static_cast<double>(value));
      break;
    case DataType::bfloat16: {
      auto const number = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      put(static_cast<std::uint16_t>(bits >> 16));
      break;
    }
  }
}

/// Intervals of tensors and the memory behind them.
class Shards {
 public:
  /// Adds [begin, end), filled with the example's values or with 0xEE.
  void add(CheckpointTensor const& tensor, std::int64_t begin, std::int64_t end, bool fill) {
    auto const width = size_of(tensor.type);
    auto& data = memory_.emplace_back(static_cast<std::size_t>((end - begin) * width), '\xee');
    for (auto element = begin; fill && element < end; ++element) {
      put_value(tensor.type, example_value(tensor.name, element), data.data() + (element - begin) * width);
    }
    shards_.push_back({tensor.name, tensor.shape, tensor.type, begin, end, data.data()});
  }

  /// Returns the first shard that does not hold the example's values, or "".
  std::string first_difference() const {
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      Shards expected;
      auto const& actual = shards_[shard];
      expected.add({actual.name, actual.shape, actual.type}, actual.begin, actual.end, true);
      if (memory_[shard] != expected.memory_[0]) return actual.name;
    }
    return "";
  }

  std::vector<TensorShard>& list() { return shards_; }

 private:
  std::deque<std::vector<char>> memory_;  // a deque leaves its elements where they are
  std::vector<TensorShard> shards_;
};

/// This rank's part of all example tensors, cut at uneven places; the scalar is on all ranks.
inline Shards example_shards(int rank, int size, bool fill) {
  Shards shards;
  auto const cut = [&](std::int64_t elements, int part) { return elements * part * part / (size * size); };
  for (auto const& tensor : example_tensors()) {
    auto const elements = elements_of(tensor);
    if (tensor.shape.empty()) {
      shards.add(tensor, 0, 1, fill);
    } else {
      shards.add(tensor, cut(elements, rank), cut(elements, rank + 1), fill);
    }
  }
  return shards;
}

}  // namespace ballast::test
