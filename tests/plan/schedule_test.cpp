// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/schedule.hpp"

#include "ballast/base/error.hpp"
#include "plan/plan_fixtures.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using test::make_plan;
using test::make_stage;
using test::uniform_model;

constexpr ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b};

std::string text(std::vector<Phase> const& phases) {
  std::string result;
  for (auto const& phase : phases) result += (phase.is_forward ? "F" : "B") + std::to_string(phase.micro_batch) + " ";
  return result;
}

TEST(Schedule, IsWhatThePapersSay) {
  EXPECT_EQ(text(phases(ScheduleKind::gpipe, 0, 2, 3)), "F0 F1 F2 B0 B1 B2 ");
  EXPECT_EQ(text(phases(ScheduleKind::one_f_one_b, 0, 3, 5)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ");
  EXPECT_EQ(text(phases(ScheduleKind::one_f_one_b, 2, 3, 3)), "F0 B0 F1 B1 F2 B2 ");
  EXPECT_EQ(text(phases(ScheduleKind::one_f_one_b, 0, 4, 2)), "F0 F1 B0 B1 ");
}

TEST(Schedule, RunsEveryPhaseOnceWithTheStatedNumberInFlight) {
  for (auto const kind : kKinds) {
    for (int num_stages = 1; num_stages <= 6; ++num_stages) {
      for (int m = 1; m <= 8; ++m) {
        for (int stage = 0; stage < num_stages; ++stage) {
          SCOPED_TRACE(to_string(kind) + " stage " + std::to_string(stage) + "/" + std::to_string(num_stages) + " M " +
                       std::to_string(m));
          int forwards = 0;
          int backwards = 0;
          int most = 0;
          for (auto const& phase : phases(kind, stage, num_stages, m)) {
            EXPECT_EQ(phase.micro_batch, phase.is_forward ? forwards : backwards);
            ++(phase.is_forward ? forwards : backwards);
            EXPECT_LE(backwards, forwards) << "a backward before its forward";
            most = std::max(most, forwards - backwards);
          }
          EXPECT_EQ(forwards, m);
          EXPECT_EQ(backwards, m);
          EXPECT_EQ(most, kind == ScheduleKind::gpipe ? m : std::min(m, num_stages - stage));
        }
      }
    }
  }
}

/// A plan with `layers_per_stage` layers on groups of `ranks_per_stage` ranks.
Plan pipeline(ScheduleKind kind, int num_stages, int layers_per_stage, int ranks_per_stage, int m) {
  std::vector<Stage> stages;
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_per_stage; ++rank) ranks.push_back(stage * ranks_per_stage + rank);
    stages.push_back(make_stage(stage * layers_per_stage, (stage + 1) * layers_per_stage, ranks,
                                std::vector<std::int64_t>(static_cast<std::size_t>(ranks_per_stage), 1)));
  }
  return make_plan(uniform_model(num_stages * layers_per_stage, 1.0), m, stages, kind);
}

TEST(Schedule, NeverDeadlocksAndPairsEveryMessage) {
  for (auto const kind : kKinds) {
    for (int num_stages = 1; num_stages <= 6; ++num_stages) {
      for (int m = 1; m <= 8; ++m) {
        SCOPED_TRACE(to_string(kind) + " S " + std::to_string(num_stages) + " M " + std::to_string(m));
        auto const plan = pipeline(kind, num_stages, 2, 1, m);
        std::vector<std::vector<Action>> lists;
        for (int stage = 0; stage < num_stages; ++stage) lists.push_back(step_actions(plan, 0, stage));
        std::set<std::pair<int, int>> activations;  // sent by (stage, micro-batch)
        std::set<std::pair<int, int>> gradients;
        std::vector<std::size_t> next(lists.size(), 0);
        for (bool moved = true; moved;) {
          moved = false;
          for (int stage = 0; stage < num_stages; ++stage) {
            auto const index = static_cast<std::size_t>(stage);
            for (; next[index] < lists[index].size(); ++next[index], moved = true) {
              auto const& action = lists[index][next[index]];
              if (action.kind == ActionKind::send_activation) activations.insert({stage, action.micro_batch});
              if (action.kind == ActionKind::send_gradient) gradients.insert({stage, action.micro_batch});
              if (action.kind == ActionKind::receive_activation &&
                  activations.erase({stage - 1, action.micro_batch}) == 0)
                break;
              if (action.kind == ActionKind::receive_gradient && gradients.erase({stage + 1, action.micro_batch}) == 0)
                break;
            }
          }
        }
        for (std::size_t stage = 0; stage < lists.size(); ++stage)
          EXPECT_EQ(next[stage], lists[stage].size()) << "stage " << stage;
        EXPECT_TRUE(activations.empty() && gradients.empty()) << "messages that nobody received";
      }
    }
  }
}

/// Weights are there when a layer runs, gradients are reduced once, nothing is left gathered.
void expect_consistent(std::vector<Action> const& actions, bool shared) {
  std::set<int> gathered;
  std::map<std::pair<int, int>, int> reduced;
  for (auto const& action : actions) {
    switch (action.kind) {
      case ActionKind::gather:
        EXPECT_TRUE(gathered.insert(action.layer).second) << "gathered twice";
        break;
      case ActionKind::release:
        EXPECT_EQ(gathered.erase(action.layer), 1u) << "released without being gathered";
        break;
      case ActionKind::forward:
      case ActionKind::backward:
        EXPECT_EQ(gathered.contains(action.layer), shared);
        break;
      case ActionKind::reduce:
        ++reduced[{action.micro_batch, action.layer}];
        break;
      default:
        break;
    }
    EXPECT_LE(gathered.size(), 1u);
  }
  EXPECT_TRUE(gathered.empty());
  for (auto const& action : actions) {
    if (action.kind == ActionKind::backward) {
      EXPECT_EQ((reduced[{action.micro_batch, action.layer}]), shared ? 1 : 0);
    }
  }
}

TEST(Schedule, GathersBeforeUseAndReducesEveryGradient) {
  for (auto const kind : kKinds) {
    for (int const layers : {1, 2, 3}) {
      for (int const ranks : {1, 2}) {
        for (int num_stages = 1; num_stages <= 3; ++num_stages) {
          SCOPED_TRACE(to_string(kind) + " layers " + std::to_string(layers) + " ranks " + std::to_string(ranks) +
                       " S " + std::to_string(num_stages));
          auto const plan = pipeline(kind, num_stages, layers, ranks, 4);
          for (int stage = 0; stage < num_stages; ++stage) {
            auto const actions = step_actions(plan, 0, stage);
            expect_consistent(actions, ranks > 1);
            EXPECT_EQ(actions.back(), (Action{ActionKind::update, -1, -1}));
            EXPECT_EQ(
                std::count_if(actions.begin(), actions.end(), [](auto const& a) { return a.kind == ActionKind::loss; }),
                stage == num_stages - 1 ? 4 : 0);
            expect_consistent(evaluation_actions(plan, 0, stage, 3), ranks > 1);
          }
        }
      }
    }
  }
}

std::int64_t count(std::vector<Action> const& actions, ActionKind kind) {
  return std::count_if(actions.begin(), actions.end(), [&](Action const& action) { return action.kind == kind; });
}

TEST(Schedule, KeepsWeightsThatAreNeededAgainAtOnce) {
  // One group, three layers, four micro-batches: 2 x 3 x 4 gathers less the last layer's before each backward (4) and
  // the first layer's before each forward but the first (3).
  EXPECT_EQ(count(step_actions(pipeline(ScheduleKind::one_f_one_b, 1, 3, 2, 4), 0, 0), ActionKind::gather), 24 - 4 - 3);
  // gpipe turns around once only.
  EXPECT_EQ(count(step_actions(pipeline(ScheduleKind::gpipe, 1, 3, 2, 4), 0, 0), ActionKind::gather), 24 - 1);
  // A single layer stays for the whole step.
  EXPECT_EQ(count(step_actions(pipeline(ScheduleKind::one_f_one_b, 1, 1, 2, 4), 0, 0), ActionKind::gather), 1);
  // Messages in between are waited for, so the weights of the first stage of two are released before.
  EXPECT_EQ(count(step_actions(pipeline(ScheduleKind::gpipe, 2, 1, 2, 4), 0, 0), ActionKind::gather), 8);
  EXPECT_EQ(count(step_actions(pipeline(ScheduleKind::one_f_one_b, 2, 1, 2, 4), 0, 1), ActionKind::gather), 4);
}

TEST(Schedule, WritesOneMicroBatchOfAGroupAsDocumented) {
  std::vector<std::pair<ActionKind, int>> found;
  for (auto const& action : step_actions(pipeline(ScheduleKind::one_f_one_b, 1, 2, 2, 1), 0, 0))
    found.emplace_back(action.kind, action.layer);

  using enum ActionKind;
  EXPECT_EQ(found, (std::vector<std::pair<ActionKind, int>>{{load, -1},
                                                            {gather, 0},
                                                            {forward, 0},
                                                            {release, 0},
                                                            {gather, 1},
                                                            {forward, 1},
                                                            {loss, -1},
                                                            {backward, 1},
                                                            {release, 1},
                                                            {reduce, 1},
                                                            {gather, 0},
                                                            {backward, 0},
                                                            {release, 0},
                                                            {reduce, 0},
                                                            {update, -1}}));
}

TEST(Schedule, EvaluatesForwardOnly) {
  auto const actions = evaluation_actions(pipeline(ScheduleKind::one_f_one_b, 2, 1, 1, 8), 0, 1, 2);

  ASSERT_EQ(actions.size(), 6u);
  EXPECT_EQ(actions[0], (Action{ActionKind::receive_activation, 0, -1}));
  EXPECT_EQ(actions[1], (Action{ActionKind::forward, 0, 1}));
  EXPECT_EQ(actions[2], (Action{ActionKind::loss, 0, -1}));
  EXPECT_EQ(actions[5], (Action{ActionKind::loss, 1, -1}));
}

TEST(Schedule, RefusesWhatDoesNotExist) {
  auto const plan = pipeline(ScheduleKind::gpipe, 2, 1, 1, 2);
  EXPECT_THROW(step_actions(plan, 1, 0), InvalidArgument);
  EXPECT_THROW(step_actions(plan, 0, 2), InvalidArgument);
  EXPECT_THROW(step_actions(plan, -1, 0), InvalidArgument);
  EXPECT_THROW(phases(ScheduleKind::gpipe, 0, 1, 0), InvalidArgument);
}

}  // namespace
}  // namespace ballast
