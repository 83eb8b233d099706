// SPDX-License-Identifier: Apache-2.0
/// A decorator that makes messages take as long as the links of a described cluster would need.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ballast/comm/communicator.hpp"

namespace ballast {

/// One level of links: time of a message = latency_s + bytes / bytes_per_s.
struct LinkSpeed {
  double latency_s = 0.0;
  double bytes_per_s = 0.0;
  friend bool operator==(LinkSpeed const&, LinkSpeed const&) = default;
};

/// Who sits where and how fast the links are; times are multiplied by `dilation`.
struct LinkDelays {
  std::vector<int> node_of_rank;  ///< by rank of the decorated communicator
  LinkSpeed within_node;
  LinkSpeed between_nodes;
  double dilation = 1.0;
};

/// Returns the undilated seconds of a ring collective over p ranks: `steps` rounds of `bytes / p` each, on the slowest
/// link of the group. All-gather and reduce-scatter take p - 1 steps, all-reduce 2 (p - 1), with `bytes` the full
/// buffer (nccl-tests' size). Broadcast is ceil(log2 p) messages of `bytes`.
double ring_seconds(LinkSpeed const& link, int ranks, int steps, std::int64_t bytes);

/// Returns a communicator that forwards to `inner` and then sleeps so that each operation lasts as long as `delays`
/// says.
/// Point-to-point: the sender stamps each message with its arrival time (one link per sender and level, used by one
/// message after the other), the receiver's wait ends no earlier; a send completes locally without delay.
/// Collectives: what the ring formula gives, counted from the moment when the last rank started; a rank that did other
/// work between start and `wait` sleeps the rest only. A barrier is ceil(log2 p) latencies.
/// All ranks run on one machine: they share its monotonic clock.
/// `split_by_node` follows `node_of_rank`.
/// @throws InvalidArgument unless node_of_rank.size() == inner->size(), dilation and bandwidths in use are above zero.
std::unique_ptr<Communicator> make_simulated(std::unique_ptr<Communicator> inner, LinkDelays delays);

}  // namespace ballast
