// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/validate.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/units.hpp"
#include "ballast/plan/memory_model.hpp"
#include "ballast/plan/schedule.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr std::int64_t kMaxMicroBatches = 65'536;  // the actions of a step are written out as a list

/// Collects faults of a plan; each check says all it can and leaves the others to say theirs.
class Checker {
 public:
  Checker(Plan const& plan, std::vector<std::string> const& layers, int num_ranks)
      : plan_(plan), layers_(layers), num_layers_(static_cast<int>(layers.size())), num_ranks_(num_ranks) {}

  std::vector<std::string> run() {
    check_layers();
    check_numbers();
    if (plan_.replicas.empty()) fault("the plan has no replica");
    if (plan_.replicas.size() > 1) {
      fault("the plan has {} replicas; this version runs one (use larger groups instead)", plan_.replicas.size());
    }
    for (std::size_t replica = 0; replica < plan_.replicas.size(); ++replica) {
      auto const& stages = plan_.replicas[replica].stages;
      if (stages.empty()) fault("replica {} has no stage", replica);
      check_ranges(stages);
      for (std::size_t stage = 0; stage < stages.size(); ++stage)
        check_stage(stages[stage], fmt::format("stage {}", stage));
    }
    if (faults_.empty()) check_deadlock();
    return std::move(faults_);
  }

 private:
  template <class... Values>
  void fault(fmt::format_string<Values...> text, Values&&... values) {
    faults_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  void check_layers() {
    auto const planned = static_cast<int>(plan_.layers.size());
    if (num_layers_ == 0) fault("the model has no layers");
    if (planned != num_layers_) fault("the plan is for {} layers, the model has {}", planned, num_layers_);
    for (int layer = 0; layer < std::min(planned, num_layers_); ++layer) {
      auto const index = static_cast<std::size_t>(layer);
      if (plan_.layers[index] == layers_[index]) continue;
      fault("layer {} is \"{}\" in the plan and \"{}\" in the model", layer, plan_.layers[index], layers_[index]);
      break;  // the rest would only repeat it
    }
    std::set<std::string_view> names;
    for (auto const& name : plan_.layers) {
      if (name.empty())
        fault("layer {} has no name", &name - plan_.layers.data());
      else if (!names.insert(name).second)
        fault("two layers are named \"{}\"", name);
    }
  }

  void check_numbers() {
    if (plan_.dtype != DataType::float32 && plan_.dtype != DataType::float64 && plan_.dtype != DataType::bfloat16) {
      fault("dtype {} cannot be trained (bfloat16, float32 and float64 can)", to_string(plan_.dtype));
    }
    if (plan_.schedule != ScheduleKind::gpipe && plan_.schedule != ScheduleKind::one_f_one_b) {
      fault("unknown schedule {}", static_cast<int>(plan_.schedule));
    }
    if (plan_.optimizer < OptimizerKind::sgd || plan_.optimizer > OptimizerKind::adamw) {
      fault("unknown optimizer {}", static_cast<int>(plan_.optimizer));
    }
    if (plan_.global_batch < 1) fault("the global batch is {}, it must be at least 1", plan_.global_batch);
    if (plan_.num_micro_batches < 1) {
      fault("the plan has {} micro-batches, it needs at least 1", plan_.num_micro_batches);
    } else if (plan_.num_micro_batches > kMaxMicroBatches) {
      fault("the plan has {} micro-batches, this version runs up to {}", plan_.num_micro_batches, kMaxMicroBatches);
    } else if (plan_.global_batch % plan_.num_micro_batches != 0) {
      fault("{} micro-batches do not divide the global batch of {}", plan_.num_micro_batches, plan_.global_batch);
    }
  }

  void check_ranges(std::vector<Stage> const& stages) {
    int expected = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      auto const [begin, end] = stages[stage].layers;
      if (begin < 0 || end > num_layers_) {
        fault("stage {} has layers [{}, {}), the model has [0, {})", stage, begin, end, num_layers_);
      }
      if (begin >= end) fault("stage {} has no layers: [{}, {})", stage, begin, end);
      if (begin > expected) fault("layers [{}, {}) before stage {} are in no stage", expected, begin, stage);
      if (begin < expected)
        fault("layers [{}, {}) of stage {} are in the stage before already", begin, std::min(expected, end), stage);
      expected = end;
    }
    if (!stages.empty() && expected < num_layers_)
      fault("layers [{}, {}) after the last stage are in no stage", expected, num_layers_);
  }

  void check_stage(Stage const& stage, std::string const& where) {
    if (stage.ranks.empty()) fault("{} has no ranks", where);
    for (int const rank : stage.ranks) {
      if (rank < 0 || rank >= num_ranks_) {
        fault("{} has rank {}, the job has ranks 0 to {}", where, rank, num_ranks_ - 1);
      } else if (std::count(stage.ranks.begin(), stage.ranks.end(), rank) > 1) {
        if (ranks_.insert(rank).second) fault("{} has rank {} twice", where, rank);
      } else if (!ranks_.insert(rank).second) {
        fault("rank {} of {} is in a stage before already", rank, where);
      }
    }
    check_batch_share(stage, where);
    check_shard_share(stage, where);
    check_recompute(stage, where);
    if (stage.zero < ZeroLevel::none || stage.zero > ZeroLevel::parameters) {
      fault("{} has unknown ZeRO level {}", where, static_cast<int>(stage.zero));
    } else if (stage.ranks.size() > 1 && stage.zero != ZeroLevel::parameters) {
      fault("{} has {} ranks with {}; this version runs groups with zero-3", where, stage.ranks.size(),
            to_string(stage.zero));
    }
    if (stage.ranks.size() > 1 && stage.gradient_reduction != GradientReduction::per_micro_batch) {
      fault("{} has {} ranks and reduces gradients per_step; this version reduces per_micro_batch", where,
            stage.ranks.size());
    }
  }

  void check_batch_share(Stage const& stage, std::string const& where) {
    if (stage.batch_share.size() != stage.ranks.size()) {
      fault("{} has {} batch shares for {} ranks", where, stage.batch_share.size(), stage.ranks.size());
    }
    std::int64_t sum = 0;
    for (auto const share : stage.batch_share) {
      if (share < 0) {
        fault("{} has the negative batch share {}", where, share);
        return;
      }
      if (share > std::max<std::int64_t>(plan_.global_batch, 0) - sum) {
        fault("{} has batch shares beyond the global batch of {}: {} samples after {}", where, plan_.global_batch,
              share, sum);
        return;
      }
      sum += share;
    }
    if (sum == 0) {
      fault("{} has no samples: its batch shares are all 0", where);
    } else if (plan_.num_micro_batches >= 1 && plan_.global_batch % plan_.num_micro_batches == 0 &&
               sum != plan_.global_batch / plan_.num_micro_batches) {
      fault("{} has batch shares of {} samples, a micro-batch has {} ({} / {})", where, sum,
            plan_.global_batch / plan_.num_micro_batches, plan_.global_batch, plan_.num_micro_batches);
    }
  }

  void check_shard_share(Stage const& stage, std::string const& where) {
    auto const& shares = stage.shard_share;
    if (shares.size() != stage.ranks.size())
      fault("{} has {} shard shares for {} ranks", where, shares.size(), stage.ranks.size());
    auto const negative = std::find_if(shares.begin(), shares.end(), [](auto share) { return share < 0; });
    if (negative != shares.end()) {
      fault("{} has the negative shard share {}", where, *negative);
    } else if (std::all_of(shares.begin(), shares.end(), [](auto share) { return share == 0; })) {
      fault("{} keeps no parameters: its shard shares are all 0", where);
    }
  }

  void check_recompute(Stage const& stage, std::string const& where) {
    for (std::size_t index = 0; index < stage.recompute.size(); ++index) {
      int const layer = stage.recompute[index];
      if (layer < stage.layers.begin || layer >= stage.layers.end) {
        fault("{} recomputes layer {}, it has layers [{}, {})", where, layer, stage.layers.begin, stage.layers.end);
      }
      if (index > 0 && stage.recompute[index - 1] >= layer) {
        fault("{} lists recomputed layer {} after layer {}; they must ascend", where, layer,
              stage.recompute[index - 1]);
      }
    }
  }

  /// Plays the phases: a forward waits for the stage before, a backward for the stage after.
  void check_deadlock() {
    auto const num_stages = static_cast<int>(plan_.replicas.front().stages.size());
    // Beyond a few rounds of the pipeline the schedule repeats itself.
    auto const num_micro_batches = std::min(plan_.num_micro_batches, std::int64_t{4} * num_stages);
    std::vector<std::vector<Phase>> lists;
    lists.reserve(static_cast<std::size_t>(num_stages));
    for (int stage = 0; stage < num_stages; ++stage)
      lists.push_back(phases(plan_.schedule, stage, num_stages, num_micro_batches));
    std::vector<std::size_t> next(lists.size(), 0);
    std::vector<int> forwards(lists.size(), 0);
    std::vector<int> backwards(lists.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < lists.size(); ++stage) {
        for (; next[stage] < lists[stage].size(); ++next[stage], moved = true) {
          auto const& phase = lists[stage][next[stage]];
          if (phase.is_forward && stage > 0 && forwards[stage - 1] <= phase.micro_batch) break;
          if (!phase.is_forward && stage + 1 < lists.size() && backwards[stage + 1] <= phase.micro_batch) break;
          ++(phase.is_forward ? forwards : backwards)[stage];
        }
      }
    }
    for (std::size_t stage = 0; stage < lists.size(); ++stage) {
      if (next[stage] < lists[stage].size())
        fault("the schedule deadlocks at stage {} after {} phases", stage, next[stage]);
    }
  }

  Plan const& plan_;
  std::vector<std::string> const& layers_;
  int num_layers_;
  int num_ranks_;
  std::set<int> ranks_;  ///< that have a stage
  std::vector<std::string> faults_;
};

std::vector<std::string> layer_names(ModelProfile const& profile) {
  std::vector<std::string> names;
  for (auto const& layer : profile.layers) names.push_back(layer.name);
  return names;
}

bool is_used(Plan const& plan, int rank) {
  auto const& stages = plan.replicas.front().stages;
  return std::any_of(stages.begin(), stages.end(), [&](Stage const& stage) {
    return std::find(stage.ranks.begin(), stage.ranks.end(), rank) != stage.ranks.end();
  });
}

}  // namespace

std::vector<std::string> structural_faults(Plan const& plan, std::vector<std::string> const& layers, int num_ranks) {
  return Checker(plan, layers, num_ranks).run();
}

std::vector<std::string> faults(Plan const& plan, ModelProfile const& profile, Topology const& topology) {
  auto result = structural_faults(plan, layer_names(profile), topology.num_ranks());
  if (!plan.model.empty() && plan.model != fingerprint(profile)) {
    result.push_back(fmt::format("the plan was made for model {}, this one is {} (\"{}\")", plan.model,
                                 fingerprint(profile), profile.name));
  }
  if (!plan.topology.empty() && plan.topology != fingerprint(topology)) {
    result.push_back(
        fmt::format("the plan was made for topology {}, this one is {}", plan.topology, fingerprint(topology)));
  }
  if (plan.dtype != profile.dtype) {
    result.push_back(fmt::format("the plan trains in {}, the model was profiled in {}", to_string(plan.dtype),
                                 to_string(profile.dtype)));
  }
  if (!result.empty()) return result;

  auto const memory = predict_memory(plan, profile, topology);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    if (memory[rank].fits() || !is_used(plan, static_cast<int>(rank))) continue;
    result.push_back(fmt::format("rank {} needs {} and has {}: {} ({} bytes) are missing", rank,
                                 format_bytes(memory[rank].peak()), format_bytes(memory[rank].capacity),
                                 format_bytes(memory[rank].peak() - memory[rank].capacity),
                                 memory[rank].peak() - memory[rank].capacity));
  }
  return result;
}

void require_runnable(Plan const& plan, std::vector<std::string> const& layers, int num_ranks) {
  auto const found = structural_faults(plan, layers, num_ranks);
  if (found.empty()) return;
  std::string message = fmt::format("the plan cannot run ({} fault{}):", found.size(), found.size() == 1 ? "" : "s");
  for (auto const& fault : found) message += "\n  " + fault;
  throw InvalidArgument(message);
}

}  // namespace ballast
