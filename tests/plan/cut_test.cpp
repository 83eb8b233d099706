// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/cut.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// ---- The oracle: every cut, every order of classes, by the formulas at CutClass and CutProblem.

/// With the least bytes of a class that has them, if `least`.
std::int64_t stage_bytes(CutClass const& costs, int begin, int end, std::int64_t in_flight, bool least = false) {
  least = least && !costs.least_in_flight_bytes.empty();
  auto const& in_flight_bytes = least ? costs.least_in_flight_bytes : costs.in_flight_bytes;
  auto const& transient_bytes = least ? costs.least_transient_bytes : costs.transient_bytes;
  std::int64_t fixed = 0;
  std::int64_t one = 0;
  std::int64_t highest = 0;
  for (auto layer = static_cast<std::size_t>(begin); layer < static_cast<std::size_t>(end); ++layer) {
    fixed += costs.fixed_bytes[layer];
    one += in_flight_bytes[layer];
    highest = std::max(highest, one + transient_bytes[layer]);
  }
  auto const first = static_cast<std::size_t>(begin);
  return fixed + (in_flight - 1) * one + in_flight * costs.input_bytes[first] + costs.begin_bytes[first] + highest;
}

double stage_seconds(CutProblem const& problem, CutClass const& costs, int begin, int end, int position) {
  std::vector<double> sums(1, 0.0);
  for (double const seconds : costs.seconds) sums.push_back(sums.back() + seconds);
  double sum = sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
  auto const k = problem.schedule == ScheduleKind::gpipe ? problem.num_micro_batches
                                                         : std::min<std::int64_t>(position, problem.num_micro_batches);
  auto const missing = stage_bytes(costs, begin, end, k) - costs.memory_bytes;
  if (missing > 0 && !costs.least_in_flight_bytes.empty()) {
    sum += costs.seconds_per_byte / (costs.per_in_flight ? static_cast<double>(k) : 1.0) * static_cast<double>(missing);
  }
  if (problem.objective == CutObjective::bottleneck) return sum;
  double const before = problem.begin_seconds.empty() ? 0.0 : problem.begin_seconds[static_cast<std::size_t>(begin)];
  double const after = problem.end_seconds.empty() ? 0.0 : problem.end_seconds[static_cast<std::size_t>(end) - 1];
  auto const m = static_cast<double>(problem.num_micro_batches);
  if (problem.schedule == ScheduleKind::gpipe) return before + (m * sum + after);
  if (position < problem.num_micro_batches) return before + std::max(m * sum, (m - position + 1) * sum + 2 * after);
  return before + std::max(m * sum, (m + 1) / 2 * sum + after);
}

std::int64_t in_flight(CutProblem const& problem, int stage, int num_stages) {
  if (problem.schedule == ScheduleKind::gpipe) return problem.num_micro_batches;
  return std::min<std::int64_t>(problem.num_micro_batches, num_stages - stage);
}

/// The time of a stage on a class; kNever when it does not fit.
double seconds_if_it_fits(CutProblem const& problem, CutClass const& unit_class, int begin, int end, int stage,
                          int num_stages) {
  if (stage_bytes(unit_class, begin, end, in_flight(problem, stage, num_stages), true) > unit_class.memory_bytes)
    return kNever;
  return stage_seconds(problem, unit_class, begin, end, num_stages - stage);
}

double brute_force(CutProblem const& problem) {
  int const num_layers = static_cast<int>(problem.classes.front().seconds.size());
  int num_units = 0;
  std::vector<int> left;
  for (auto const& unit_class : problem.classes) {
    num_units += unit_class.count;
    left.push_back(unit_class.count);
  }
  int const most = problem.max_stages > 0 ? std::min(problem.max_stages, num_units) : num_units;
  double best = kNever;
  for (int num_stages = 1; num_stages <= most; ++num_stages) {
    if (problem.num_stages > 0 && num_stages != problem.num_stages) continue;
    std::function<void(int, int, double)> place = [&](int stage, int begin, double so_far) {
      if (so_far >= best && best < kNever) return;
      if (stage == num_stages) {
        if (begin == num_layers) best = std::min(best, so_far);
        return;
      }
      for (int end = begin + 1; end <= num_layers; ++end) {
        for (std::size_t index = 0; index < problem.classes.size(); ++index) {
          if (left[index] == 0) continue;
          double const seconds = seconds_if_it_fits(problem, problem.classes[index], begin, end, stage, num_stages);
          if (seconds == kNever) continue;
          --left[index];
          place(stage + 1, end, std::max(so_far, seconds));
          ++left[index];
        }
      }
    };
    place(0, 0, 0.0);
  }
  return best;
}

/// The result is a cut, fits, and has the bottleneck that it claims.
void expect_sound(CutProblem const& problem, CutResult const& result) {
  int expected = 0;
  double bottleneck = 0;
  std::vector<int> used(problem.classes.size(), 0);
  int const num_stages = static_cast<int>(result.stages.size());
  for (int stage = 0; stage < num_stages; ++stage) {
    auto const& [layers, unit_class] = result.stages[static_cast<std::size_t>(stage)];
    auto const& taken = problem.classes.at(static_cast<std::size_t>(unit_class));
    EXPECT_EQ(layers.begin, expected);
    EXPECT_GT(layers.end, layers.begin);
    EXPECT_LE(stage_bytes(taken, layers.begin, layers.end, in_flight(problem, stage, num_stages), true),
              taken.memory_bytes);
    EXPECT_LE(++used[static_cast<std::size_t>(unit_class)], taken.count);
    bottleneck = std::max(bottleneck, stage_seconds(problem, taken, layers.begin, layers.end, num_stages - stage));
    expected = layers.end;
  }
  EXPECT_EQ(expected, static_cast<int>(problem.classes.front().seconds.size()));
  EXPECT_EQ(bottleneck, result.bottleneck_s);
  if (problem.max_stages > 0) {
    EXPECT_LE(num_stages, problem.max_stages);
  }
  if (problem.num_stages > 0) {
    EXPECT_EQ(num_stages, problem.num_stages);
  }
}

// ---- Random problems.

class RandomProblems {
 public:
  explicit RandomProblems(std::uint32_t seed) : generator_(seed) {}

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }
  bool coin() { return integer(0, 1) == 1; }

  /// `dyadic`: times are multiples of 1/8, so that every sum is exact, and ties abound.
  CutProblem next(int num_classes, bool dyadic, bool of_step, bool odd_memory) {
    int const num_layers = integer(1, 8);
    CutProblem problem;
    problem.num_micro_batches = integer(1, 6);
    problem.schedule = coin() ? ScheduleKind::gpipe : ScheduleKind::one_f_one_b;
    int units_left = integer(1, 5);
    for (int index = 0; index < num_classes; ++index) {
      auto unit_class = costs(num_layers, dyadic, odd_memory);
      unit_class.count = index + 1 == num_classes ? units_left : integer(0, units_left);
      units_left -= unit_class.count;
      unit_class.memory_bytes = integer(0, 3) == 0 ? 1'000'000 : integer(5, 40 * num_layers);
      problem.classes.push_back(unit_class);
    }
    if (integer(0, 3) == 0) problem.max_stages = integer(1, 5);
    if (integer(0, 3) == 0) problem.num_stages = integer(1, 5);
    if (of_step) {
      problem.objective = CutObjective::step;
      problem.begin_seconds.assign(static_cast<std::size_t>(num_layers), 0.0);
      problem.end_seconds = problem.begin_seconds;
      for (int layer = 1; layer < num_layers; ++layer) {
        auto const index = static_cast<std::size_t>(layer);
        problem.begin_seconds[index] =
            problem.begin_seconds[index - 1] + least_seconds(problem, layer - 1) / (1 << integer(0, 2));
        auto const mirrored = static_cast<std::size_t>(num_layers - layer) - 1;
        problem.end_seconds[mirrored] =
            problem.end_seconds[mirrored + 1] + least_seconds(problem, num_layers - layer) / (1 << integer(0, 2));
      }
    }
    return problem;
  }

 private:
  static double least_seconds(CutProblem const& problem, int layer) {
    double least = kNever;
    for (auto const& unit_class : problem.classes)
      least = std::min(least, unit_class.seconds[static_cast<std::size_t>(layer)]);
    return least;
  }

  CutClass costs(int num_layers, bool dyadic, bool odd_memory) {
    CutClass result;
    bool const elastic = coin();
    if (elastic) result.per_in_flight = coin();
    if (elastic)
      result.seconds_per_byte =
          dyadic ? integer(0, 4) / 8.0 : std::uniform_real_distribution<double>(0.0, 0.5)(generator_);
    for (int layer = 0; layer < num_layers; ++layer) {
      result.seconds.push_back(dyadic ? integer(0, 40) / 8.0
                                      : std::uniform_real_distribution<double>(0.0, 5.0)(generator_));
      result.fixed_bytes.push_back(integer(0, 20));
      result.in_flight_bytes.push_back(integer(odd_memory ? 0 : 5, 10));
      result.transient_bytes.push_back(integer(0, 20));
      result.input_bytes.push_back(integer(0, odd_memory ? 30 : 2));
      result.begin_bytes.push_back(integer(0, odd_memory ? 30 : 2));
      if (!elastic) continue;
      result.least_in_flight_bytes.push_back(integer(odd_memory ? 0 : 4, 5));
      result.least_transient_bytes.push_back(integer(0, static_cast<int>(result.transient_bytes.back())));
    }
    return result;
  }

  std::mt19937 generator_;
};

void compare_with_brute_force(std::uint32_t seed, int num_cases, int num_classes, bool dyadic, bool of_step,
                              bool odd_memory) {
  RandomProblems problems(seed);
  int infeasible = 0;
  for (int number = 0; number < num_cases; ++number) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(number));
    auto const problem = problems.next(num_classes, dyadic, of_step, odd_memory);

    auto const result = cut(problem);

    double const expected = brute_force(problem);
    ASSERT_EQ(result.feasible, expected < kNever);
    if (!result.feasible) {
      ++infeasible;
      continue;
    }
    ASSERT_EQ(result.bottleneck_s, expected);
    expect_sound(problem, result);
  }
  EXPECT_GT(infeasible, num_cases / 50) << "the cases do not test infeasibility";
  EXPECT_LT(infeasible, num_cases * 9 / 10) << "nearly all cases are infeasible";
}

TEST(Cut, EqualsBruteForceForOneClass) { compare_with_brute_force(1, 2500, 1, false, false, false); }
TEST(Cut, EqualsBruteForceForOneClassWithTies) { compare_with_brute_force(2, 1500, 1, true, true, false); }
TEST(Cut, EqualsBruteForceForTwoClasses) { compare_with_brute_force(3, 2500, 2, false, false, false); }
TEST(Cut, EqualsBruteForceForTwoClassesWithTies) { compare_with_brute_force(4, 1500, 2, true, true, false); }
TEST(Cut, EqualsBruteForceForThreeClasses) { compare_with_brute_force(5, 1500, 3, false, false, false); }
TEST(Cut, EqualsBruteForceWhenALongerStageMayNeedLessMemory) { compare_with_brute_force(6, 2500, 2, true, true, true); }

// ---- Cases one can follow by hand.

CutClass plain(int count, std::int64_t memory_bytes, std::vector<double> seconds) {
  std::vector<std::int64_t> const none(seconds.size(), 0);
  return {count, memory_bytes, std::move(seconds), none, none, none, none, none, 0.0, false, {}, {}};
}

TEST(Cut, LeavesTheHeavyHeadAlone) {
  CutProblem problem;
  problem.classes = {plain(2, 0, {1, 1, 1, 1, 4})};

  auto const result = cut(problem);

  EXPECT_EQ(result.bottleneck_s, 4.0);
  EXPECT_EQ(result.stages, (std::vector<CutStage>{{{0, 4}, 0}, {{4, 5}, 0}}));
}

TEST(Cut, CountsThatTheFirstStageKeepsMoreMicroBatches) {
  // Four equal layers of 10 bytes per micro-batch, two devices of 45 bytes: two layers in the first stage would keep
  // 2 x 20 = 40 bytes, three would keep 60; the last stage keeps one micro-batch and may hold all four.
  CutProblem problem;
  problem.num_micro_batches = 8;
  problem.classes = {plain(2, 45, {1, 1, 1, 1})};
  problem.classes[0].in_flight_bytes = {10, 10, 10, 10};
  EXPECT_EQ(cut(problem).bottleneck_s, 2.0);

  problem.classes[0].memory_bytes = 39;  // now the first stage can hold one layer only: 20 bytes

  auto const result = cut(problem);

  EXPECT_EQ(result.bottleneck_s, 3.0);
  EXPECT_EQ(result.stages, (std::vector<CutStage>{{{0, 1}, 0}, {{1, 4}, 0}}));
}

TEST(Cut, BuysMemoryWithTimeOnlyWhereItIsMissing) {
  // Two layers of 20 bytes per micro-batch in the first stage keep 2 x 40 bytes, of which 45 fit: 35 are missing. The
  // second stage keeps 40 and pays nothing.
  CutProblem problem;
  problem.num_micro_batches = 8;
  problem.classes = {plain(2, 45, {3, 3, 3, 3})};
  problem.classes[0].in_flight_bytes = {20, 20, 20, 20};
  EXPECT_FALSE(cut(problem).feasible && cut(problem).bottleneck_s < 9) << "one layer and three do not fit either";
  problem.classes[0].seconds_per_byte = 0.0625;
  problem.classes[0].least_in_flight_bytes = {2, 2, 2, 2};
  problem.classes[0].least_transient_bytes = {0, 0, 0, 0};

  auto const result = cut(problem);

  EXPECT_EQ(result.bottleneck_s, 6 + 0.0625 * 35);
  EXPECT_EQ(result.stages, (std::vector<CutStage>{{{0, 2}, 0}, {{2, 4}, 0}}));
}

TEST(Cut, PutsTheLargeLayerOnTheLargeDeviceWhereverItStands) {
  CutProblem problem;
  for (std::int64_t const memory : {10, 100}) problem.classes.push_back(plain(1, memory, {1, 1, 1}));
  for (auto& unit_class : problem.classes) unit_class.fixed_bytes = {50, 1, 1};

  auto const result = cut(problem);

  EXPECT_EQ(result.bottleneck_s, 2.0);
  EXPECT_EQ(result.stages.front().unit_class, 1);
}

TEST(Cut, UsesFewerStagesWhenMoreDoNotHelp) {
  CutProblem problem;
  problem.classes = {plain(4, 0, {1, 5, 1})};

  auto const result = cut(problem);

  EXPECT_EQ(result.bottleneck_s, 5.0);
  EXPECT_EQ(result.stages.size(), 3u);
  problem.max_stages = 2;
  EXPECT_EQ(cut(problem).bottleneck_s, 6.0);
}

TEST(Cut, CountsHowThePipelineFillsAndDrains) {
  CutProblem problem;
  problem.classes = {plain(2, 0, {1, 1, 1, 1})};
  problem.objective = CutObjective::step;
  problem.begin_seconds = {0, 1, 2, 3};
  problem.end_seconds = {3, 2, 1, 0};
  problem.num_micro_batches = 8;

  EXPECT_EQ(cut(problem).bottleneck_s, (8 + 1) * 2.0);
  problem.schedule = ScheduleKind::gpipe;
  EXPECT_EQ(cut(problem).bottleneck_s, (8 + 1) * 2.0);
  problem.num_micro_batches = 1;
  EXPECT_EQ(cut(problem).bottleneck_s, 4.0) << "one micro-batch passes all layers one after the other";
}

TEST(Cut, IsExactOnALongChainOfManyUnits) {
  // 1,000 layers of 1 and 3 seconds in turns on 10 units: 2,000 / 10 = 200 is a realisable sum.
  CutProblem problem;
  std::vector<double> seconds;
  for (int layer = 0; layer < 1000; ++layer) seconds.push_back(layer % 2 == 0 ? 1.0 : 3.0);
  problem.classes = {plain(10, 0, seconds)};

  EXPECT_EQ(cut(problem).bottleneck_s, 200.0);
}

TEST(Cut, RefusesInputThatMakesNoSense) {
  CutProblem good;
  good.classes = {plain(1, 10, {1, 2})};
  EXPECT_TRUE(cut(good).feasible);
  auto const refused = [&](std::function<void(CutProblem&)> const& spoil) {
    auto problem = good;
    spoil(problem);
    EXPECT_THROW(cut(problem), InvalidArgument);
  };

  refused([](auto& p) { p.classes.clear(); });
  refused([](auto& p) { p.classes[0] = plain(1, 10, {}); });
  refused([](auto& p) { p.classes[0].seconds[1] = std::nan(""); });
  refused([](auto& p) { p.classes[0].seconds[1] = -1; });
  refused([](auto& p) { p.classes[0].seconds[1] = kNever; });
  refused([](auto& p) { p.classes[0].fixed_bytes[0] = -1; });
  refused([](auto& p) { p.classes[0].in_flight_bytes.pop_back(); });
  refused([](auto& p) { p.classes[0].transient_bytes[0] = std::numeric_limits<std::int64_t>::max(); });
  refused([](auto& p) { p.classes[0].count = -1; });
  refused([](auto& p) { p.classes[0].memory_bytes = -1; });
  refused([](auto& p) { p.num_micro_batches = 0; });
  refused([](auto& p) { p.num_stages = -1; });
  refused([](auto& p) { p.classes[0].least_in_flight_bytes = {1, 1}; });
  refused([](auto& p) {
    p.classes[0].least_in_flight_bytes = p.classes[0].least_transient_bytes = {1, 1};
    p.classes[0].seconds_per_byte = std::nan("");
  });
  refused([](auto& p) { p.begin_seconds = {0}; });
  refused([](auto& p) { p.begin_seconds = {0, 5}; });
  refused([](auto& p) { p.end_seconds = {5, 0}; });
  refused([](auto& p) { p.end_seconds = {std::nan(""), 0}; });
}

TEST(Cut, IsInfeasibleWithoutUnitsOrWithTooManyStages) {
  CutProblem problem;
  problem.classes = {plain(0, 10, {1, 2})};
  EXPECT_FALSE(cut(problem).feasible);
  problem.classes[0].count = 5;
  problem.num_stages = 3;
  EXPECT_FALSE(cut(problem).feasible) << "two layers make no three stages";
  problem.num_stages = 2;
  EXPECT_TRUE(cut(problem).feasible);
}

}  // namespace
}  // namespace ballast
