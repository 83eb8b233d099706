// SPDX-License-Identifier: Apache-2.0
/// The balancer against brute force on random small models and clusters.
#include "ballast/base/error.hpp"
#include "ballast/plan/balance.hpp"
#include "ballast/plan/memory_model.hpp"
#include "ballast/plan/shares.hpp"
#include "ballast/plan/simulate.hpp"
#include "ballast/plan/validate.hpp"
#include "plan/plan_fixtures.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::make_plan;
using test::make_stage;

struct Problem {
  ModelProfile profile;
  Topology topology;
  CollectiveProfile collectives;
  BalanceOptions options;
};

class RandomProblems {
 public:
  explicit RandomProblems(std::uint32_t seed) : generator_(seed) {}

  Problem next(int max_layers, int max_ranks) {
    Problem problem;
    std::vector<test::LayerSketch> sketches;
    int const num_layers = integer(1, max_layers);
    for (int layer = 0; layer < num_layers; ++layer) {
      sketches.push_back({"layer" + std::to_string(layer), integer(0, 3) == 0 ? 0 : integer(1, 40'000), real(0.1, 3.0),
                          512 * integer(1, 40), 512 * integer(1, 200), real(0.0, 1.0), 512 * integer(0, 60)});
    }
    problem.profile = test::make_model(sketches);
    problem.profile.update_s_per_parameter = coin() ? 0.0 : 1e-5;
    problem.profile.baseline_bytes = coin() ? 0 : 10'000;
    for (auto& layer : problem.profile.layers) {  // noise of measuring, and fewer points
      for (auto& point : layer.points) point.forward_s *= real(0.8, 1.2);
      if (coin()) layer.points.resize(static_cast<std::size_t>(integer(1, 4)));
    }
    int const num_ranks = integer(1, max_ranks);
    int const on_first = integer(1, num_ranks);
    problem.topology = on_first == num_ranks ? test::make_topology({num_ranks}, 0)
                                             : test::make_topology({on_first, num_ranks - on_first}, 0);
    auto const memory = integer(1, 40) * 100'000;
    double const speeds[] = {1.0, 0.5, 2.0};
    for (auto& device : problem.topology.devices) {
      device.memory_bytes = coin() ? memory : memory / integer(1, 3);
      device.speed = speeds[integer(0, 2)];
    }
    if (coin()) problem.topology.dilation = 2.5;
    problem.collectives =
        coin() ? default_collective_profile(problem.topology) : test::flat_collectives(real(0.0, 1.0));
    problem.options.global_batch = integer(1, 8);
    problem.options.optimizer = coin() ? OptimizerKind::adamw : OptimizerKind::sgd;
    if (integer(0, 3) == 0) problem.options.allow_recompute = false;
    return problem;
  }

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(generator_); }
  bool coin() { return integer(0, 1) == 1; }

 private:
  std::mt19937 generator_;
};

bool fits(Plan const& plan, Problem const& problem) {
  auto const memory = predict_memory(plan, problem.profile, problem.topology);
  return std::all_of(memory.begin(), memory.end(), [](auto const& rank) { return rank.fits(); });
}

double step_of(Plan const& plan, Problem const& problem) {
  return simulate(plan, problem.profile, problem.topology, problem.collectives).step_s;
}

std::vector<std::vector<std::vector<int>>> divisions(Topology const& topology) {
  std::vector<int> all(topology.devices.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int>> singles;
  std::vector<std::vector<int>> nodes(topology.nodes.size());
  for (int const rank : all) {
    singles.push_back({rank});
    nodes[static_cast<std::size_t>(topology.devices[static_cast<std::size_t>(rank)].node)].push_back(rank);
  }
  return {{all}, nodes, singles};
}

/// Calls `visit` with every plan of: the whole job, nodes or single ranks as groups, in every order and number, every
/// cut, every micro-batch, both schedules; recompute of no, all or some layers of each stage; samples by speed or at
/// random.
void each_plan(Problem const& problem, RandomProblems& random, std::function<void(Plan&)> const& visit) {
  int const num_layers = static_cast<int>(problem.profile.layers.size());
  for (auto groups : divisions(problem.topology)) {
    for (std::int64_t m = 1; m <= problem.options.global_batch; ++m) {
      if (problem.options.global_batch % m != 0) continue;
      auto const micro_batch = problem.options.global_batch / m;
      std::vector<Stage> stages;
      std::vector<char> used(groups.size(), 0);
      std::function<void(int)> extend = [&](int begin) {
        if (begin == num_layers) {
          for (auto const schedule : problem.options.schedules) {
            auto plan = make_plan(problem.profile, m, stages, schedule);
            plan.optimizer = problem.options.optimizer;
            visit(plan);
          }
          return;
        }
        for (std::size_t group = 0; group < groups.size(); ++group) {
          if (used[group] != 0) continue;
          used[group] = 1;
          for (int end = begin + 1; end <= num_layers; ++end) {
            for (int const recompute : {0, 1, 2}) {  // none, all, some
              if (recompute > 0 && !problem.options.allow_recompute) continue;
              if (recompute == 2 && end - begin == 1) continue;
              std::vector<double> weights;
              for (int const rank : groups[group])
                weights.push_back(problem.topology.devices[static_cast<std::size_t>(rank)].speed);
              if (weights.size() > 1 && random.integer(0, 2) == 0) {
                for (auto& weight : weights) weight = random.real(0.0, 1.0);
              }
              auto stage = make_stage(begin, end, groups[group], apportion(micro_batch, weights));
              for (int layer = begin; layer < end; ++layer) {
                if (recompute == 1 || (recompute == 2 && random.coin())) stage.recompute.push_back(layer);
              }
              stages.push_back(stage);
              extend(end);
              stages.pop_back();
            }
          }
          used[group] = 0;
        }
      };
      extend(0);
    }
  }
}

/// Equal numbers of layers in the order of ranks or nodes, or the whole job on all layers: what people would write.
std::vector<Plan> naive_plans(Problem const& problem) {
  std::vector<Plan> result;
  int const num_layers = static_cast<int>(problem.profile.layers.size());
  for (auto const& groups : divisions(problem.topology)) {
    int const num_stages = std::min(num_layers, static_cast<int>(groups.size()));
    for (std::int64_t m = 1; m <= problem.options.global_batch; ++m) {
      if (problem.options.global_batch % m != 0) continue;
      std::vector<Stage> stages;
      for (int stage = 0; stage < num_stages; ++stage) {
        auto const& ranks = groups[static_cast<std::size_t>(stage)];
        stages.push_back(
            make_stage(stage * num_layers / num_stages, (stage + 1) * num_layers / num_stages, ranks,
                       apportion(problem.options.global_batch / m, std::vector<double>(ranks.size(), 1.0))));
      }
      for (auto const schedule : problem.options.schedules) {
        result.push_back(make_plan(problem.profile, m, stages, schedule));
        result.back().optimizer = problem.options.optimizer;
      }
    }
  }
  return result;
}

void expect_sound(Plan const& plan, Problem const& problem) {
  EXPECT_EQ(faults(plan, problem.profile, problem.topology), std::vector<std::string>{});
  EXPECT_EQ(plan.predictions.step_s, step_of(plan, problem));
  EXPECT_LE(plan.predictions.lower_bound_s, plan.predictions.step_s);
  EXPECT_GE(plan.predictions.gap, 0);
}

TEST(BalanceProperty, AgreesWithBruteForceOnSmallProblems) {
  constexpr std::uint32_t seed = 21;
  constexpr int num_cases = 100;
  RandomProblems problems(seed);
  int infeasible = 0;
  int optimal = 0;
  double worst = 1;
  for (int number = 0; number < num_cases; ++number) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(number));
    auto const problem = problems.next(5, 3);
    std::optional<Plan> plan;
    try {
      plan = balance(problem.profile, problem.topology, problem.collectives, problem.options);
    } catch (InfeasiblePlan const& error) {
      ++infeasible;
      EXPECT_GT(error.missing_bytes(), 0);
    }
    if (plan) expect_sound(*plan, problem);

    double best = std::numeric_limits<double>::infinity();
    each_plan(problem, problems, [&](Plan& other) {
      if (best < std::numeric_limits<double>::infinity() && !plan) return;
      if (plan && step_of(other, problem) >= best) return;
      if (!fits(other, problem)) return;
      best = std::min(best, step_of(other, problem));
    });
    if (!plan) {
      EXPECT_EQ(best, std::numeric_limits<double>::infinity()) << "refused, but there is a plan that fits";
      continue;
    }
    EXPECT_LE(plan->predictions.lower_bound_s, best * (1 + 1e-9)) << "the bound is no bound";
    EXPECT_LE(plan->predictions.step_s, best * 1.10) << "far from the best";
    worst = std::max(worst, plan->predictions.step_s / best);
    optimal += plan->predictions.step_s <= best * (1 + 1e-9);
  }
  RecordProperty("worst_ratio", std::to_string(worst));
  RecordProperty("optimal", optimal);
  RecordProperty("infeasible", infeasible);
  std::printf("%d of %d infeasible, %d optimal, worst %.4f x the best\n", infeasible, num_cases, optimal, worst);
  EXPECT_GT(infeasible, num_cases / 20);
  EXPECT_GT(optimal, (num_cases - infeasible) * 8 / 10);
}

TEST(BalanceProperty, IsNeverSlowerThanTheNaivePlansThatFit) {
  constexpr std::uint32_t seed = 22;
  RandomProblems problems(seed);
  int compared = 0;
  for (int number = 0; number < 100; ++number) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(number));
    auto const problem = problems.next(10, 6);
    std::optional<Plan> plan;
    try {
      plan = balance(problem.profile, problem.topology, problem.collectives, problem.options);
    } catch (InfeasiblePlan const&) {
    }
    if (plan) expect_sound(*plan, problem);
    for (auto const& naive : naive_plans(problem)) {
      ASSERT_EQ(structural_faults(naive, test::layer_names(problem.profile), problem.topology.num_ranks()),
                std::vector<std::string>{});
      if (!fits(naive, problem)) continue;
      ASSERT_TRUE(plan.has_value()) << "refused, but a naive plan fits";
      double const seconds = step_of(naive, problem);
      EXPECT_LE(plan->predictions.step_s, seconds * (1 + 1e-12));
      EXPECT_LE(plan->predictions.lower_bound_s, seconds * (1 + 1e-9));
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(BalanceProperty, GivesTheSameBytesTwice) {
  constexpr std::uint32_t seed = 23;
  RandomProblems problems(seed);
  for (int number = 0; number < 25; ++number) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(number));
    auto const problem = problems.next(12, 8);
    auto const text = [&]() -> std::string {
      try {
        return to_json(balance(problem.profile, problem.topology, problem.collectives, problem.options));
      } catch (InfeasiblePlan const& error) {
        return error.what();
      }
    };
    auto const once = text();
    EXPECT_EQ(once, text());
    if (once.starts_with("{")) {
      auto const plan = plan_from_json(once, "plan");
      EXPECT_EQ(to_json(plan), once);
      expect_sound(plan, problem);
    }
  }
}

}  // namespace
}  // namespace ballast
