// SPDX-License-Identifier: Apache-2.0
/// Measured times of collectives and messages, as a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/cluster/topology.hpp"

namespace ballast {

enum class Operation : std::int32_t { all_reduce, all_gather, reduce_scatter, send };

/// One measured point. `bytes` is nccl-tests' size: the whole buffer for all_reduce, the gathered result for all_gather,
/// the input for reduce_scatter, the message for send. `seconds` is the median over repetitions of the slowest rank.
struct CollectivePoint {
  Operation operation = Operation::send;
  LinkLevel level = LinkLevel::node;
  int ranks = 2;                   ///< size of the group; 2 for send
  std::int64_t bytes = 0;
  double seconds = 0.0;            ///< of the job: on a simulated cluster including its dilation
  friend bool operator==(CollectivePoint const&, CollectivePoint const&) = default;
};

/// algbw = bytes / seconds (nccl-tests, doc/PERFORMANCE.md).
double algbw(CollectivePoint const& point);
/// busbw = algbw x 2 (p - 1) / p for all_reduce, (p - 1) / p for all_gather and reduce_scatter, 1 for send.
double busbw(CollectivePoint const& point);

/// Times of collectives by operation, level, group size and bytes. JSON "ballast.collectives/1".
struct CollectiveProfile {
  bool measured = false;           ///< false: the stated defaults
  std::vector<CollectivePoint> points;
  friend bool operator==(CollectiveProfile const&, CollectiveProfile const&) = default;

  /// Returns the seconds of one operation: piecewise linear in bytes through the points of the same operation and level
  /// with the nearest group size (scaled by rounds (p - 1) when sizes differ), proportional beyond the largest, the
  /// smallest point's time below it. A group of one rank costs 0. If a level has no points the other level's serve.
  /// @throws InvalidArgument when nothing of `operation` is there.
  double seconds(Operation operation, LinkLevel level, int ranks, std::int64_t bytes) const;
};

/// Returns stated defaults, not measured: within a node 2 us and 5 GB/s, between nodes 30 us and 1 GB/s, by the ring
/// formula, times the dilation, for the group sizes of `topology` (beyond 64 ranks powers of two and those that occur).
CollectiveProfile default_collective_profile(Topology const& topology);

std::string to_string(Operation operation);
/// @throws DataError naming the value.
Operation parse_operation(std::string_view name);
std::string to_json(CollectiveProfile const& profile);
/// @throws DataError; times must be finite and above zero, bytes positive.
CollectiveProfile collective_profile_from_json(std::string_view text, std::string const& source);

}  // namespace ballast
