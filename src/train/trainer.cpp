// SPDX-License-Identifier: Apache-2.0
#include "ballast/train/trainer.hpp"

#include "ballast/base/json.hpp"
#include "ballast/base/seed.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/device/device_memory.hpp"
#include "ballast/device/tensor_types.hpp"
#include "ballast/plan/validate.hpp"
#include "trainer_impl.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>

namespace ballast {
namespace {

/// Evaluations take the same samples in every run, whatever the run's seed.
constexpr std::uint64_t kEvaluationSeed = 0x6576616c75617465;

double slowdown_of(TrainerOptions const& options) {
  return options.dilation > 0.0 ? options.dilation / options.device.speed : 0.0;
}

void require_optimizer(Plan const& plan, OptimizerOptions const& optimizer) {
  if (plan.dtype != DataType::float32 && plan.dtype != DataType::float64) {
    throw InvalidArgument(
        fmt::format("the plan trains in {}; this version updates float32 and float64 only", to_string(plan.dtype)));
  }
  if (kind_of(optimizer) == plan.optimizer) return;
  throw InvalidArgument(fmt::format("the plan was made for the optimizer {}, the trainer was given {}",
                                    to_string(plan.optimizer), to_string(kind_of(optimizer))));
}

}  // namespace

OptimizerKind kind_of(OptimizerOptions const& options) noexcept {
  if (std::holds_alternative<AdamW>(options)) return OptimizerKind::adamw;
  return std::get<Sgd>(options).momentum != 0.0 ? OptimizerKind::sgd_momentum : OptimizerKind::sgd;
}

Trainer::Impl::Impl(Model const& model, Plan plan, OptimizerOptions optimizer, Communicator& world,
                    TrainerOptions options)
    : model_(model),
      plan_(std::move(plan)),
      optimizer_(std::move(optimizer)),
      world_(world),
      options_(std::move(options)),
      pacer_(slowdown_of(options_), [this] { world_.check_failure(); }) {
  collectively(world_, [&] {
    require_runnable(plan_, model_.layer_names(), world_.size());
    require_optimizer(plan_, optimizer_);
  });
  require_equal_on_all_ranks();

  install_device_memory();
  set_device_capacity(options_.device.memory_bytes > 0 ? options_.device.memory_bytes
                                                       : std::numeric_limits<std::int64_t>::max());
  reset_device_peak();
  // A simulated device is timed by the CPU time of this thread, so all of its work must be done by this thread.
  if (options_.dilation > 0.0) at::set_num_threads(1);

  join_group();
  collectively(world_, [&] {
    if (runner_) runner_->build(options_.seed, num_states(plan_.optimizer));
  });
}

void Trainer::Impl::require_equal_on_all_ranks() {
  // One number stands for everything that must be equal: its least and its greatest over the ranks are then the same.
  auto const text = to_json(plan_) + detail::optimizer_json(optimizer_).dump();
  auto const hash = static_cast<std::int64_t>(derive_seed(options_.seed, text));
  std::array<std::int64_t, 2> least{hash, ~hash};
  world_.all_reduce(std::span<std::int64_t>(least), ReduceOperation::min).synchronize();
  if (least[0] != ~least[1]) throw InvalidArgument("the ranks were given different plans, optimizers or seeds");
}

void Trainer::Impl::join_group() {
  auto const& stages = plan_.replicas.front().stages;
  int position = 0;
  for (int stage = 0; stage < std::ssize(stages); ++stage) {
    auto const& ranks = stages[static_cast<std::size_t>(stage)].ranks;
    auto const self = std::find(ranks.begin(), ranks.end(), world_.rank());
    if (self == ranks.end()) continue;
    stage_ = stage;
    position = static_cast<int>(self - ranks.begin());
  }
  bool const shares = stage_ >= 0 && stages[static_cast<std::size_t>(stage_)].ranks.size() > 1;
  group_ = world_.split(shares ? stage_ : -1, position);
  if (stage_ < 0) return;
  runner_ = std::make_unique<detail::StageRunner>(model_, plan_, stage_, world_, group_.get(), pacer_);
  actions_ = step_actions(plan_, 0, stage_);
}

void Trainer::Impl::guarded(std::function<void(std::string& doing)> const& work) {
  if (failed_)
    throw Error(ErrorKind::failed, "this trainer has failed before and cannot go on; start from a checkpoint");
  std::string doing = "step";
  try {
    work(doing);
  } catch (...) {
    auto const error = std::current_exception();
    failed_ = true;
    world_.check_failure();  // throws what another rank reported: then this rank only heard of it
    auto message = message_of(error);
    if (!message.starts_with(doing)) message = fmt::format("{}: {}", doing, message);
    if (world_.size() > 1) {
      world_.report_failure(kind_of(error), message);
      world_.check_failure();  // throws it in the words that the other ranks hear
    }
    throw_error(kind_of(error), message);
  }
}

StepReport Trainer::Impl::step(Batch const& global_batch) {
  double const start_s = wall_seconds();
  collectively(world_, [&] {
    auto const require = [&](at::Tensor const& tensor, char const* what) {
      auto const size = tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
      if (size == plan_.global_batch) return;
      throw InvalidArgument(
          fmt::format("the plan's global batch is {} samples, found {} in the {}", plan_.global_batch, size, what));
    };
    for (auto const& input : global_batch.inputs) require(input, "inputs");
    require(global_batch.targets, "targets");
  });
  return step(detail::BatchSource(global_batch, to_scalar_type(plan_.dtype)), start_s);
}

StepReport Trainer::Impl::step(Dataset const& data) {
  double const start_s = wall_seconds();
  auto indices = sample_indices(options_.seed, num_steps_, plan_.global_batch, data.size());
  return step(detail::DatasetSource(data, std::move(indices), to_scalar_type(plan_.dtype)), start_s);
}

StepReport Trainer::Impl::step(detail::SampleSource const& samples, double start_s) {
  pacer_.reset();
  detail::PassResult result;
  double step_s = 0.0;
  guarded([&](std::string& doing) {
    if (runner_) {
      detail::PassOptions const options{
          .training = true,
          .seed = derive_seed(derive_seed(options_.seed, "layers"), static_cast<std::uint64_t>(num_steps_)),
          .update = num_steps_ + 1,
          .optimizer = &optimizer_};
      result = runner_->run(actions_, samples, options, doing);
    } else {
      double const wait_s = wall_seconds();
      result.all = detail::sum_over_ranks(world_, {});  // waits for the ranks that have a stage
      result.communicate_s = wall_seconds() - wait_s;
    }
    doing = "end of the step";
    step_s = all_reduce_value(world_, wall_seconds() - start_s, ReduceOperation::max);
  });
  if (!(result.all.weight > 0.0)) {
    throw InvalidArgument(
        fmt::format("the global batch of step {} has a loss weight of {}: no target counts; nothing was "
                    "updated",
                    num_steps_ + 1, result.all.weight));
  }
  ++num_steps_;
  return {.step = num_steps_,
          .loss = result.all.sum / result.all.weight,
          .weight = result.all.weight,
          .step_s = step_s,
          .busy_s = pacer_.busy_s(),
          .communicate_s = result.communicate_s,
          .peak_bytes = device_memory().peak_bytes};
}

double Trainer::Impl::evaluate(Dataset const& data, std::int64_t num_batches) {
  collectively(world_, [&] {
    if (num_batches < 1) throw InvalidArgument(fmt::format("evaluate needs at least one batch, found {}", num_batches));
  });
  std::vector<std::int64_t> indices;
  for (std::int64_t batch = 0; batch < num_batches; ++batch) {
    auto const more = sample_indices(kEvaluationSeed, batch, plan_.global_batch, data.size());
    indices.insert(indices.end(), more.begin(), more.end());
  }
  detail::DatasetSource const samples(data, std::move(indices), to_scalar_type(plan_.dtype));

  detail::LossTotals totals;
  guarded([&](std::string& doing) {
    if (runner_) {
      runner_->set_training(false);
      auto const actions = evaluation_actions(plan_, 0, stage_, num_batches * plan_.num_micro_batches);
      totals = runner_->run(actions, samples, {.training = false, .seed = kEvaluationSeed}, doing).mine;
      runner_->set_training(true);
    }
    doing = "end of the evaluation";
    totals = detail::sum_over_ranks(world_, totals);  // waits for the last stage
  });
  if (!(totals.weight > 0.0)) {
    throw InvalidArgument(fmt::format("the evaluation has a loss weight of {}: no target counts", totals.weight));
  }
  return totals.sum / totals.weight;
}

Trainer::Trainer(Model const& model, Plan plan, OptimizerOptions optimizer, Communicator& world, TrainerOptions options)
    : impl_(std::make_unique<Impl>(model, std::move(plan), std::move(optimizer), world, std::move(options))) {}
Trainer::~Trainer() = default;

StepReport Trainer::step(Batch const& global_batch) { return impl_->step(global_batch); }
StepReport Trainer::step(Dataset const& data) { return impl_->step(data); }
double Trainer::evaluate(Dataset const& data, std::int64_t num_batches) { return impl_->evaluate(data, num_batches); }
std::int64_t Trainer::num_steps() const noexcept { return impl_->num_steps(); }
Plan const& Trainer::plan() const noexcept { return impl_->plan(); }
std::filesystem::path Trainer::save(std::filesystem::path const& directory, std::string const& config,
                                    SaveOptions const& options) {
  return impl_->save(directory, config, options);
}
bool Trainer::resume(std::filesystem::path const& directory) { return impl_->resume(directory); }
std::vector<WholeTensor> Trainer::gather_parameters() { return impl_->gather_parameters(); }

}  // namespace ballast
