// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/shares.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace ballast {
namespace {

__extension__ typedef __int128 Wide;  // elements times shares pass 64 bits

}  // namespace

Interval intersect(Interval const& a, Interval const& b) noexcept {
  auto const begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::vector<Interval> shard_intervals(std::int64_t num_elements, std::span<std::int64_t const> shares,
                                      std::int64_t bytes_per_element) {
  Wide total = 0;
  for (auto const share : shares) {
    if (share < 0) throw InvalidArgument(fmt::format("shard shares must not be negative, found {}", share));
    total += share;
  }
  if (total == 0)
    throw InvalidArgument(fmt::format("all {} shard shares are 0: nobody would keep the parameters", shares.size()));
  if (num_elements < 0 || bytes_per_element < 1) {
    throw InvalidArgument(fmt::format("cannot share {} elements of {} bytes", num_elements, bytes_per_element));
  }

  auto const aligned = std::max<std::int64_t>(1, kShardAlignmentBytes / bytes_per_element);
  std::vector<Interval> intervals;
  intervals.reserve(shares.size());
  Wide running = 0;
  std::int64_t begin = 0;
  for (auto const share : shares) {
    running += share;
    auto const exact = static_cast<std::int64_t>(num_elements * running / total);
    auto const end = running == total ? num_elements : exact / aligned * aligned;
    intervals.push_back({begin, end});
    begin = end;
  }
  return intervals;
}

std::vector<Interval> batch_intervals(std::span<std::int64_t const> batch_share) {
  std::vector<Interval> intervals;
  intervals.reserve(batch_share.size());
  std::int64_t begin = 0;
  for (auto const share : batch_share) {
    intervals.push_back({begin, begin + share});
    begin += share;
  }
  return intervals;
}

std::vector<std::int64_t> apportion(std::int64_t total, std::span<double const> weights) {
  double sum = 0;
  for (auto const weight : weights) {
    if (!std::isfinite(weight) || weight < 0) {
      throw InvalidArgument(fmt::format("weights to apportion by must be finite and not negative, found {}", weight));
    }
    sum += weight;
  }
  if (total < 0 || (total > 0 && !(sum > 0 && std::isfinite(sum)))) {
    throw InvalidArgument(
        fmt::format("cannot apportion {} by {} weights that sum up to {}", total, weights.size(), sum));
  }

  std::vector<std::int64_t> parts(weights.size(), 0);
  if (total == 0) return parts;
  std::vector<double> remainders(weights.size(), 0.0);
  std::int64_t left = total;
  for (std::size_t index = 0; index < weights.size(); ++index) {
    double const quota = static_cast<double>(total) * (weights[index] / sum);
    parts[index] = std::min(static_cast<std::int64_t>(std::floor(quota)), left);
    remainders[index] = quota - static_cast<double>(parts[index]);
    left -= parts[index];
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return remainders[a] > remainders[b]; });
  // One round hands out all that is left, but for totals beyond the precision of double.
  for (std::size_t next = 0; left > 0; next = (next + 1) % order.size()) {
    if (weights[order[next]] == 0) continue;
    ++parts[order[next]];
    --left;
  }
  return parts;
}

}  // namespace ballast
