// SPDX-License-Identifier: Apache-2.0
/// Who writes what: from the shards of all ranks to the tensors of a step and the intervals in each rank's file. Pure.
#pragma once

#include "manifest.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::detail {

/// What all ranks must hold together.
struct SaveLayout {
  std::vector<CheckpointTensor> tensors;         ///< by name
  std::vector<std::vector<StoredShard>> shards;  ///< by rank that writes them
};

/// Returns a rank's shards as text for `make_layout`. @throws InvalidArgument naming the shard and what is wrong with it.
std::string describe_shards(std::int64_t step, std::vector<TensorShard> const& shards);

/// Returns who writes what; of exact replicas the lowest rank writes. `descriptions` are those of all ranks.
///
/// Example: rank 0 holds w[0, 6), ranks 1 and 2 hold w[6, 12) of a (4, 3) tensor: rank 0 and rank 1 write one shard each.
/// @throws InvalidArgument if ranks disagree on the step or a tensor, if shards overlap or leave a part uncovered.
SaveLayout make_layout(std::vector<std::string> const& descriptions);

/// One dataset, or a part of it, on its way into memory.
struct ShardRead {
  std::string dataset;
  DataType type = DataType::float32;
  std::int64_t size = 0;    ///< elements of the dataset
  std::int64_t offset = 0;  ///< first element to read
  std::int64_t count = 0;
  void* data = nullptr;
};

/// Returns by file of the manifest what to read to fill `shards`. @throws InvalidArgument if a tensor is unknown or has
/// another shape or type, DataError naming tensor and interval if no file holds it.
std::vector<std::vector<ShardRead>> plan_reads(Manifest const& manifest, std::vector<TensorShard> const& shards);

/// Returns a line for every part of a tensor that is stored twice or not at all.
std::vector<std::string> coverage_faults(Manifest const& manifest);

}  // namespace ballast::detail
