// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/simulate.hpp"

#include "plan/plan_fixtures.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::flat_collectives;
using test::make_plan;
using test::make_stage;
using test::make_topology;
using test::uniform_model;

/// `num_stages` stages of `layers` layers on one rank each.
Plan pipeline(ModelProfile const& profile, int num_stages, int layers, std::int64_t m, ScheduleKind schedule) {
  std::vector<Stage> stages;
  for (int stage = 0; stage < num_stages; ++stage)
    stages.push_back(make_stage(stage * layers, (stage + 1) * layers, {stage}, {1}));
  return make_plan(profile, m, stages, schedule);
}

TEST(Simulate, GivesTheClosedFormOfUniformPipelines) {
  for (auto const schedule : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    for (int num_stages = 1; num_stages <= 6; ++num_stages) {
      for (std::int64_t m = 1; m <= 8; ++m) {
        SCOPED_TRACE(to_string(schedule) + " S " + std::to_string(num_stages) + " M " + std::to_string(m));
        auto const profile = uniform_model(2 * num_stages, 0.25);  // f + b of a stage: 2 x 0.75

        auto const result = simulate(pipeline(profile, num_stages, 2, m, schedule), profile,
                                     make_topology({num_stages}, 0), flat_collectives(0));

        EXPECT_EQ(result.step_s, 1.5 * static_cast<double>(m + num_stages - 1));
        EXPECT_NEAR(result.bubble, static_cast<double>(num_stages - 1) / static_cast<double>(m + num_stages - 1),
                    1e-12);
        for (double const seconds : result.stage_micro_batch_s) EXPECT_EQ(seconds, 1.5);
      }
    }
  }
}

TEST(Simulate, WaitsForMessagesAsComputedByHand) {
  // f = 1, b = 2, a message takes 0.5. Stage 0: F0 0-1, F1 1-2. Stage 1: F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5.
  // Stage 0: the gradients arrive at 5 and 8, B0 5-7, B1 8-10.
  auto const profile = uniform_model(2, 1.0);

  auto const result = simulate(pipeline(profile, 2, 1, 2, ScheduleKind::one_f_one_b), profile, make_topology({2}, 0),
                               flat_collectives(0.5));

  EXPECT_EQ(result.step_s, 10.0);
  EXPECT_EQ(result.ranks[0], (RankTimes{6, 0, 4}));
  EXPECT_EQ(result.ranks[1], (RankTimes{6, 0, 4}));
  EXPECT_EQ(result.bubble, 0.4);
  auto const last = std::find_if(result.timeline.begin(), result.timeline.end(), [](TimelineEntry const& entry) {
    return entry.rank == 0 && entry.action == Action{ActionKind::backward, 1, 0};
  });
  ASSERT_NE(last, result.timeline.end());
  EXPECT_EQ(last->begin_s, 8.0);
  EXPECT_EQ(last->end_s, 10.0);
}

TEST(Simulate, SendsOneMessageAfterTheOther) {
  // f = 1, messages keep the link for 3 and need 0.5 more: sent at 1, 2, 3, they arrive at 4.5, 7.5, 10.5.
  auto profile = uniform_model(2, 1.0);
  profile.layers[0].points[0].backward_s = 0;
  profile.layers[0].points[0].output_bytes = 1 << 20;
  auto const plan = pipeline(profile, 2, 1, 3, ScheduleKind::gpipe);
  auto collectives = flat_collectives(0.5);
  for (auto& point : collectives.points) {
    if (point.operation == Operation::send && point.bytes > 1) point = {Operation::send, point.level, 2, 1 << 20, 3.5};
  }

  auto const result = simulate(plan, profile, make_topology({2}, 0), collectives);

  std::vector<double> arrivals;
  for (auto const& entry : result.timeline) {
    if (entry.action.kind == ActionKind::receive_activation) arrivals.push_back(entry.end_s);
  }
  EXPECT_EQ(arrivals, (std::vector<double>{4.5, 7.5, 10.5}));
}

TEST(Simulate, MeetsTheGroupAtEveryCollective) {
  // gather, f, gather, f, b (its gather is left out), reduce, gather, b, reduce: 5 collectives of 1 s.
  auto const profile = uniform_model(2, 1.0, 100);
  auto const plan = make_plan(profile, 1, {make_stage(0, 2, {0, 1}, {1, 1})});
  auto topology = make_topology({2}, 0);

  EXPECT_EQ(simulate(plan, profile, topology, flat_collectives(1)).step_s, 5 + 2 * 1 + 2 * 2);

  topology.devices[1].speed = 0.5;  // twice as long, and the other waits
  auto const result = simulate(plan, profile, topology, flat_collectives(1));
  EXPECT_EQ(result.step_s, 5 + 2 * (2 * 1 + 2 * 2));
  EXPECT_EQ(result.ranks[0], (RankTimes{6, 5, 6}));
  EXPECT_EQ(result.ranks[1], (RankTimes{12, 5, 0}));
  EXPECT_EQ(result.stage_micro_batch_s[0], 17);
}

TEST(Simulate, CountsRecomputeDilationAndUpdate) {
  auto profile = uniform_model(2, 1.0, 1000);
  profile.update_s_per_parameter = 0.001;
  auto plan = make_plan(profile, 3, {make_stage(0, 2, {0}, {1})});
  plan.replicas[0].stages[0].recompute = {1};
  auto topology = make_topology({1}, 0);
  topology.dilation = 2;

  EXPECT_EQ(simulate(plan, profile, topology, flat_collectives(1)).step_s, 2 * (3 * (2 * 3 + 1) + 2));
}

TEST(Simulate, MovesTheSamplesThatChangeTheirRank) {
  // Samples 0,1 | 2,3 go to 0 | 1,2,3: rank 0 sends to both ranks of the next stage, rank 1 to the second only.
  auto const profile = uniform_model(2, 1.0);
  auto const plan = make_plan(profile, 1, {make_stage(0, 1, {0, 1}, {2, 2}), make_stage(1, 2, {2, 3}, {1, 3})});

  auto const result = simulate(plan, profile, make_topology({4}, 0), flat_collectives(0));

  EXPECT_GT(result.step_s, 0);
  double const forward_of_two = 2;
  for (auto const& entry : result.timeline) {
    if (entry.action.kind == ActionKind::receive_activation) {
      EXPECT_EQ(entry.end_s, forward_of_two);
    }
  }
}

TEST(Simulate, DividesTheStepOfEveryRankIntoBusyCommunicatingAndWaiting) {
  auto const profile = test::gpt_like(6, 64, 500, 32);
  auto const topology = make_topology({2, 3}, 0);
  auto const plan = make_plan(profile, 5, {make_stage(0, 3, {0, 1}, {3, 1}), make_stage(3, 8, {2, 3}, {0, 4})});

  auto const result = simulate(plan, profile, topology, default_collective_profile(topology));

  ASSERT_EQ(result.ranks.size(), 5u);
  double waiting = 0;
  for (auto const& times : result.ranks) {
    EXPECT_NEAR(times.busy_s + times.communicate_s + times.wait_s, result.step_s, 1e-12);
    waiting += times.wait_s / result.step_s / 5;
  }
  EXPECT_NEAR(result.bubble, waiting, 1e-12);
  EXPECT_EQ(result.ranks[4].wait_s, result.step_s) << "a rank in no stage";
  EXPECT_EQ(result.stage_micro_batch_s.size(), 2u);
}

TEST(Simulate, KeepsTheTimelineInOrder) {
  auto const profile = uniform_model(4, 1.0);
  auto const plan = pipeline(profile, 2, 2, 4, ScheduleKind::one_f_one_b);

  auto const result = simulate(plan, profile, make_topology({2}, 0), flat_collectives(0.1));

  std::vector<double> clocks(2, 0.0);
  std::size_t entries = 0;
  for (auto const& entry : result.timeline) {
    auto& clock = clocks[static_cast<std::size_t>(entry.rank)];
    EXPECT_EQ(entry.begin_s, clock);
    EXPECT_GE(entry.end_s, entry.begin_s);
    clock = entry.end_s;
    ++entries;
  }
  EXPECT_EQ(entries, step_actions(plan, 0, 0).size() + step_actions(plan, 0, 1).size());
}

}  // namespace
}  // namespace ballast
