// SPDX-License-Identifier: Apache-2.0
#include "stage_fit.hpp"

#include "ballast/plan/shares.hpp"
#include "stage_memory.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace ballast::detail {
namespace {

class StageFitter {
 public:
  StageFitter(Plan& plan, int stage, SearchInput const& input)
      : plan_(plan),
        stage_(stage),
        input_(input),
        self_(plan.replicas.front().stages[static_cast<std::size_t>(stage)]) {}

  std::int64_t run() {
    self_.recompute.clear();
    share_equally();
    auto const asked = self_;
    auto missing = fit_shards();
    if (missing == 0) return 0;

    // Memory is short. What costs least time of: recompute, samples moved to ranks with more memory, or both.
    std::optional<Stage> best;
    double best_s = 0;
    auto const consider = [&](bool recompute, bool move) {
      self_ = asked;
      auto const left = recompute ? fit_recompute(move) : move_samples();
      missing = std::min(missing, left);
      if (left != 0) return;
      double const seconds = computing_seconds(self_, input_);
      if (!best || seconds < best_s) {
        best = self_;
        best_s = seconds;
      }
    };
    bool const can_move = self_.ranks.size() > 1;
    if (input_.options.allow_recompute) consider(true, false);
    if (can_move) consider(false, true);
    if (can_move && input_.options.allow_recompute && !best) consider(true, true);
    if (!best) return missing;
    self_ = *best;
    return 0;
  }

 private:
  std::vector<MemoryPrediction> peaks() const { return stage_memory(plan_, stage_, input_.topology, input_.layers); }

  static std::int64_t overflow(std::vector<MemoryPrediction> const& peaks) {
    std::int64_t sum = 0;
    for (auto const& peak : peaks) sum += std::max<std::int64_t>(0, peak.peak() - peak.capacity);
    return sum;
  }

  Device const& device(std::size_t local_rank) const {
    return input_.topology.devices[static_cast<std::size_t>(self_.ranks[local_rank])];
  }

  void share_equally() { self_.shard_share.assign(self_.ranks.size(), 1); }

  /// Bytes of weights, gradients and optimizer state on one rank, or (no rank) on all together.
  std::int64_t sharded_bytes(std::optional<std::size_t> local_rank) const {
    auto const element = size_of(plan_.dtype);
    std::int64_t sum = 0;
    for (int layer = self_.layers.begin; layer < self_.layers.end; ++layer) {
      auto const whole = input_.profile.layers[static_cast<std::size_t>(layer)].num_parameters;
      auto const part = local_rank ? shard_intervals(whole, self_.shard_share, element)[*local_rank].size() : whole;
      sum += round_allocation(part * element);
    }
    return sum * (2 + num_states(plan_.optimizer));
  }

  /// Memory of each rank that is left for shards; negative if the rank is short even without any.
  std::vector<std::int64_t> free_for_shards(std::vector<MemoryPrediction> const& peaks) const {
    std::vector<std::int64_t> result;
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
      result.push_back(peaks[rank].capacity - peaks[rank].peak() + sharded_bytes(rank));
    }
    return result;
  }

  /// Shard shares: equal, or by free memory when equal ones do not fit. Returns the missing bytes.
  std::int64_t fit_shards() {
    share_equally();
    auto found = peaks();
    auto const missing = overflow(found);
    if (missing == 0 || self_.ranks.size() == 1) return missing;
    for (int attempt = 0; attempt < 3; ++attempt) {  // again, since rounding and the peak's moment depend on the shares
      auto free = free_for_shards(found);
      if (*std::min_element(free.begin(), free.end()) < 0) break;
      if (std::accumulate(free.begin(), free.end(), std::int64_t{0}) < sharded_bytes({})) break;
      for (auto& bytes : free) bytes /= kAllocationQuantum;
      if (std::all_of(free.begin(), free.end(), [](auto share) { return share == 0; })) break;
      self_.shard_share = free;
      found = peaks();
      if (overflow(found) == 0) return 0;
    }
    auto const left = overflow(found);
    if (missing <= left) share_equally();
    return std::min(missing, left);
  }

  /// Moves samples from the rank that is most short of memory, even without shards, to the one that has room for them
  /// and is done with them first.
  std::int64_t move_samples() {
    auto& samples = self_.batch_share;
    auto missing = fit_shards();
    for (auto moves = self_.micro_batch(); missing > 0 && moves > 0; --moves) {
      auto const found = peaks();
      auto const free = free_for_shards(found);
      auto const giver = static_cast<std::size_t>(std::min_element(free.begin(), free.end()) - free.begin());
      if (free[giver] >= 0 || samples[giver] == 0) break;
      auto const per_sample = std::max<std::int64_t>(1, found[giver].activations / samples[giver]);
      auto const moved = std::clamp<std::int64_t>(-free[giver] / per_sample, 1, samples[giver]);
      std::optional<std::size_t> taker;
      double least_s = 0;
      for (std::size_t rank = 0; rank < samples.size(); ++rank) {
        if (rank == giver || free[rank] < per_sample * moved) continue;
        double const seconds = static_cast<double>(samples[rank] + moved) / device(rank).speed;
        if (taker && seconds >= least_s) continue;
        taker = rank;
        least_s = seconds;
      }
      if (!taker) break;
      samples[giver] -= moved;
      samples[*taker] += moved;
      missing = fit_shards();
    }
    return missing;
  }

  /// Recomputes as few layers as needed, those first that cost least time for the bytes they save. Returns the missing
  /// bytes.
  std::int64_t fit_recompute(bool move) {
    auto const order = by_price();
    auto const asked = self_;
    auto const missing_with = [&](std::size_t count) {
      self_ = asked;
      self_.recompute.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
      std::sort(self_.recompute.begin(), self_.recompute.end());
      return move ? move_samples() : fit_shards();
    };
    if (order.empty()) return missing_with(0);
    // More layers need not always help, since a layer that is recomputed needs more while it runs. So the count grows
    // until one fits, and then only what lies between that and the last that did not is looked at.
    std::size_t too_few = 0;
    auto least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t count = 1; least != 0; count = std::min(2 * count, order.size())) {
      auto const missing = missing_with(count);
      least = std::min(least, missing);
      if (missing == 0) {
        auto enough = count;
        while (enough - too_few > 1) {
          auto const middle = too_few + (enough - too_few) / 2;
          (missing_with(middle) == 0 ? enough : too_few) = middle;
        }
        missing_with(enough);
        keep_what_fits();
        return 0;
      }
      if (count == order.size()) break;
      too_few = count;
    }
    return std::min(least, drop_what_hurts());
  }

  /// Stops recomputing layers that need more memory that way than without, such as the last of a stage with one
  /// micro-batch in flight. Returns the missing bytes.
  std::int64_t drop_what_hurts() {
    auto missing = overflow(peaks());
    for (auto const layer : std::vector<int>(self_.recompute.rbegin(), self_.recompute.rend())) {
      auto const before = self_.recompute;
      std::erase(self_.recompute, layer);
      auto const left = overflow(peaks());
      if (left <= missing) {
        missing = left;
      } else {
        self_.recompute = before;
      }
    }
    if (missing > 0 && self_.ranks.size() > 1) missing = fit_shards();
    return missing;
  }

  /// The layers whose recompute saves memory, cheapest first.
  std::vector<int> by_price() const {
    auto const largest = *std::max_element(self_.batch_share.begin(), self_.batch_share.end());
    auto const& points = input_.layers.at(largest);
    auto const saved = [&](int layer) {
      auto const& point = points[static_cast<std::size_t>(layer)];
      return static_cast<double>(point.saved_bytes - point.output_bytes);
    };
    std::vector<int> order;
    for (int layer = self_.layers.begin; layer < self_.layers.end; ++layer) {
      if (saved(layer) > 0) order.push_back(layer);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return points[static_cast<std::size_t>(a)].forward_s * saved(b) <
             points[static_cast<std::size_t>(b)].forward_s * saved(a);
    });
    return order;
  }

  /// Stops recomputing layers, those first whose forward takes longest, as long as the stage fits.
  void keep_what_fits() {
    auto const largest = *std::max_element(self_.batch_share.begin(), self_.batch_share.end());
    auto const& points = input_.layers.at(largest);
    auto order = self_.recompute;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return points[static_cast<std::size_t>(a)].forward_s > points[static_cast<std::size_t>(b)].forward_s;
    });
    for (int const layer : order) {
      auto const before = self_.recompute;
      std::erase(self_.recompute, layer);
      if (overflow(peaks()) > 0) self_.recompute = before;
    }
  }

  Plan& plan_;
  int stage_;
  SearchInput const& input_;
  Stage& self_;
};

}  // namespace

std::int64_t fit_stage(Plan& plan, int stage, SearchInput const& input) {
  return StageFitter(plan, stage, input).run();
}

bool stage_fits(Plan const& plan, int stage, SearchInput const& input) {
  auto const peaks = stage_memory(plan, stage, input.topology, input.layers);
  return std::all_of(peaks.begin(), peaks.end(), [](MemoryPrediction const& peak) { return peak.fits(); });
}

double computing_seconds(Stage const& stage, SearchInput const& input) {
  double sum = 0;
  for (int layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
    bool const recompute = std::binary_search(stage.recompute.begin(), stage.recompute.end(), layer);
    double forward = 0;
    double backward = 0;
    for (std::size_t rank = 0; rank < stage.ranks.size(); ++rank) {
      auto const& point = input.layers.at(stage.batch_share[rank])[static_cast<std::size_t>(layer)];
      double const slowness =
          input.topology.dilation / input.topology.devices[static_cast<std::size_t>(stage.ranks[rank])].speed;
      forward = std::max(forward, point.forward_s * slowness);
      backward = std::max(backward, (point.backward_s + (recompute ? point.forward_s : 0.0)) * slowness);
    }
    sum += forward + backward;
  }
  return sum;
}

}  // namespace ballast::detail
