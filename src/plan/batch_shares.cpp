// SPDX-License-Identifier: Apache-2.0
#include "batch_shares.hpp"

#include "ballast/plan/shares.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace ballast::detail {
namespace {

using Shares = std::vector<std::int64_t>;

/// The seconds of a group, at the speeds of its devices.
class GroupSeconds {
 public:
  GroupSeconds(std::vector<Device> const& devices, LayerRange range, LayerTable& layers)
      : devices_(devices),
        first_(static_cast<std::size_t>(range.begin)),
        last_(static_cast<std::size_t>(range.end) + (range.end == layers.num_layers() ? 1 : 0)),  // with the loss
        layers_(layers) {}

  double of_rank(std::size_t rank, std::int64_t samples) const {
    auto const& points = layers_.at(samples);
    double sum = 0;
    for (auto layer = first_; layer < last_; ++layer) sum += points[layer].forward_s + points[layer].backward_s;
    return sum / devices_[rank].speed;
  }

  /// Ranks meet at every layer, so the slowest at each counts.
  double of_group(Shares const& shares) const {
    double sum = 0;
    for (auto layer = first_; layer < last_; ++layer) {
      double forward = 0;
      double backward = 0;
      for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        auto const& point = layers_.at(shares[rank])[layer];
        forward = std::max(forward, point.forward_s / devices_[rank].speed);
        backward = std::max(backward, point.backward_s / devices_[rank].speed);
      }
      sum += forward + backward;
    }
    return sum;
  }

 private:
  std::vector<Device> const& devices_;
  std::size_t first_;
  std::size_t last_;
  LayerTable& layers_;
};

/// Moves samples from the slowest rank to where one more costs least. Times are not proportional to samples, so shares
/// by speed are only a beginning.
void level(Shares& shares, std::int64_t micro_batch, GroupSeconds const& seconds) {
  for (std::int64_t moves = 0; moves < micro_batch; ++moves) {
    std::size_t slowest = 0;
    std::size_t receiver = 0;
    double largest = -1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      if (double const now = seconds.of_rank(rank, shares[rank]); now > largest) {
        largest = now;
        slowest = rank;
      }
      if (double const then = seconds.of_rank(rank, shares[rank] + 1); then < least) {
        least = then;
        receiver = rank;
      }
    }
    if (!(least < largest) || receiver == slowest || shares[slowest] == 0) return;
    --shares[slowest];
    ++shares[receiver];
  }
}

/// Moves single samples between any two ranks as long as the group gains. For small groups, since it asks about all
/// pairs.
void exchange(Shares& shares, std::int64_t micro_batch, GroupSeconds const& seconds) {
  double now = seconds.of_group(shares);
  for (std::int64_t moves = 0; moves < micro_batch; ++moves) {
    auto best = shares;
    for (std::size_t giver = 0; giver < shares.size(); ++giver) {
      for (std::size_t taker = 0; taker < shares.size(); ++taker) {
        if (giver == taker || shares[giver] == 0) continue;
        auto changed = shares;
        --changed[giver];
        ++changed[taker];
        if (double const then = seconds.of_group(changed); then < now) {
          now = then;
          best = std::move(changed);
        }
      }
    }
    if (best == shares) return;
    shares = std::move(best);
  }
}

}  // namespace

std::vector<std::int64_t> shares_by_speed(std::vector<Device> const& devices, LayerRange range,
                                          std::int64_t micro_batch, LayerTable& layers) {
  constexpr std::size_t small_group = 8;
  auto equal = apportion(micro_batch, std::vector<double>(devices.size(), 1.0));
  if (devices.size() == 1) return equal;
  bool const all_alike = std::all_of(devices.begin(), devices.end(),
                                     [&](Device const& device) { return device.speed == devices.front().speed; });
  GroupSeconds const seconds(devices, range, layers);
  std::vector<double> speeds;
  speeds.reserve(devices.size());
  for (auto const& device : devices) speeds.push_back(device.speed);
  auto shares = apportion(micro_batch, speeds);
  level(shares, micro_batch, seconds);
  if (devices.size() <= small_group && !all_alike) {
    exchange(shares, micro_batch, seconds);
    exchange(equal, micro_batch, seconds);
  }
  if (seconds.of_group(equal) <= seconds.of_group(shares)) shares = std::move(equal);

  // Among equally fast devices those with more memory take more.
  for (std::size_t a = 0; a < shares.size(); ++a) {
    for (std::size_t b = a + 1; b < shares.size(); ++b) {
      bool const has_less = devices[a].memory_bytes < devices[b].memory_bytes;
      if (speeds[a] == speeds[b] && has_less && shares[a] > shares[b]) std::swap(shares[a], shares[b]);
    }
  }
  return shares;
}

}  // namespace ballast::detail
