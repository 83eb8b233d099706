// SPDX-License-Identifier: Apache-2.0
#include "run_config.hpp"

#include "ballast/base/seed.hpp"
#include "ballast/train/trainer.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ballast {
namespace {

std::variant<GptOptions, MlpOptions> read_model(Settings& settings) {
  if (settings.choice("model.kind", {"gpt", "mlp"}) == "mlp") {
    MlpOptions mlp;
    mlp.widths = settings.integers("model.widths");
    bool const positive = std::all_of(mlp.widths.begin(), mlp.widths.end(), [](auto width) { return width > 0; });
    if (mlp.widths.size() < 2 || !positive) settings.fail("model.widths", "at least two widths above 0");
    return mlp;
  }
  GptOptions gpt;
  gpt.num_layers = settings.integer("model.layers", 1, gpt.num_layers);
  gpt.num_heads = settings.integer("model.heads", 1, gpt.num_heads);
  gpt.channels = settings.integer("model.channels", 1, gpt.channels);
  gpt.context = settings.integer("model.context", 1, gpt.context);
  gpt.vocabulary = settings.integer("model.vocabulary", 2, gpt.vocabulary);
  if (gpt.channels % gpt.num_heads != 0) settings.fail("model.channels", "a multiple of the number of heads");
  return gpt;
}

std::variant<TextData, RegressionData> read_data(Settings& settings, bool is_gpt) {
  auto const kind = settings.choice("data.kind", {"text", "regression"});
  if ((kind == "text") != is_gpt) {
    settings.fail("data.kind", is_gpt ? "\"text\" for a model of kind gpt" : "\"regression\" for a model of kind mlp");
  }
  if (kind == "regression") {
    RegressionData regression;
    regression.samples = settings.integer("data.samples", 1, 10000);
    regression.seed = static_cast<std::uint64_t>(settings.integer("data.seed", 0, 0));
    return regression;
  }
  TextData text;
  text.paths = settings.paths("data.paths");
  if (text.paths.empty()) settings.fail("data.paths", "at least one file or folder");
  return text;
}

OptimizerOptions read_optimizer(Settings& settings) {
  if (settings.choice("train.optimizer", {"adamw", "sgd"}, "adamw") == "sgd") {
    Sgd sgd;
    sgd.learning_rate = settings.number("train.learning_rate", 0.0, sgd.learning_rate);
    sgd.momentum = settings.number("train.momentum", 0.0, sgd.momentum);
    sgd.weight_decay = settings.number("train.weight_decay", 0.0, sgd.weight_decay);
    return sgd;
  }
  AdamW adamw;
  adamw.learning_rate = settings.number("train.learning_rate", 0.0, adamw.learning_rate);
  adamw.beta1 = settings.share("train.beta1", adamw.beta1);
  adamw.beta2 = settings.share("train.beta2", adamw.beta2);
  adamw.epsilon = settings.number("train.epsilon", 0.0, adamw.epsilon);
  adamw.weight_decay = settings.number("train.weight_decay", 0.0, adamw.weight_decay);
  return adamw;
}

BalanceOptions read_plan(Settings& settings, OptimizerOptions const& optimizer) {
  BalanceOptions balance;
  balance.global_batch = settings.integer("train.global_batch", 1, 32);
  balance.optimizer = kind_of(optimizer);
  balance.micro_batches = settings.integers("plan.micro_batches", std::vector<std::int64_t>{});
  auto const out_of_range = [&](auto size) { return size < 1 || size > balance.global_batch; };
  if (std::any_of(balance.micro_batches.begin(), balance.micro_batches.end(), out_of_range)) {
    settings.fail("plan.micro_batches", "sizes from 1 to train.global_batch");
  }
  balance.schedules.clear();
  for (auto const& name : settings.texts("plan.schedules", std::vector<std::string>{"1f1b", "gpipe"})) {
    if (name != "1f1b" && name != "gpipe") settings.fail("plan.schedules", "a list of \"1f1b\" and \"gpipe\"");
    balance.schedules.push_back(parse_schedule(name));
  }
  if (balance.schedules.empty()) settings.fail("plan.schedules", "at least one of \"1f1b\" and \"gpipe\"");
  balance.allow_recompute = settings.flag("plan.recompute", true);
  balance.reserve = settings.share("plan.reserve", 0.0);
  if (auto const stages = settings.integer("plan.stages", 0, 0); stages > 0) {
    if (stages > std::numeric_limits<int>::max()) settings.fail("plan.stages", "fewer stages");
    balance.num_stages = static_cast<int>(stages);
  }
  if (auto const size = settings.integer("plan.group_size", 0, 0); size > 0) balance.group_size = size;
  return balance;
}

void read_train(Settings& settings, RunConfig& config) {
  config.steps = settings.integer("train.steps", 1, 100);
  config.optimizer = read_optimizer(settings);
  config.dtype = parse_data_type(settings.choice("train.dtype", {"float32", "float64"}, "float32"));
  config.seed = static_cast<std::uint64_t>(settings.integer("train.seed", 0, 0));
  config.evaluate_every = settings.integer("train.evaluate_every", 0, 0);
  config.evaluate_batches = settings.integer("train.evaluate_batches", 0, 8);
  config.log_every = settings.integer("train.log_every", 0, 0);
}

void read_checkpoint(Settings& settings, RunConfig& config) {
  config.checkpoint_directory = settings.path("checkpoint.directory", "checkpoints");
  if (config.checkpoint_directory.empty()) settings.fail("checkpoint.directory", "a folder");
  config.checkpoint_every = settings.integer("checkpoint.every", 0, 0);
  auto const keep = settings.integer("checkpoint.keep", 0, config.keep);
  if (keep > std::numeric_limits<int>::max()) settings.fail("checkpoint.keep", "a smaller number");
  config.keep = static_cast<int>(keep);
  config.resume = settings.text("checkpoint.resume", "auto");
  if (config.resume != "auto" && config.resume != "never") config.resume = settings.path("checkpoint.resume", "auto");
}

/// Samples [begin, end) of a data set.
class DatasetPart final : public Dataset {
 public:
  DatasetPart(std::unique_ptr<Dataset> whole, std::int64_t begin, std::int64_t end)
      : whole_(std::move(whole)), begin_(begin), end_(end) {
    if (begin >= end)
      throw InvalidArgument("[data]: a part of the regression samples is empty, more samples are needed");
  }
  std::int64_t size() const override { return end_ - begin_; }
  Batch samples(std::span<std::int64_t const> indices) const override { return whole_->samples(moved(indices)); }
  Tensors inputs(std::span<std::int64_t const> indices) const override { return whole_->inputs(moved(indices)); }
  at::Tensor targets(std::span<std::int64_t const> indices) const override { return whole_->targets(moved(indices)); }

 private:
  std::vector<std::int64_t> moved(std::span<std::int64_t const> indices) const {
    std::vector<std::int64_t> result(indices.begin(), indices.end());
    for (auto& index : result) index += begin_;
    return result;
  }

  std::unique_ptr<Dataset> whole_;
  std::int64_t begin_;
  std::int64_t end_;
};

/// The data from `begin` to `end`, as parts of the whole.
std::unique_ptr<Dataset> make_data(RunConfig const& config, double begin, double end) {
  if (auto const* text = std::get_if<TextData>(&config.data)) {
    return make_text_dataset(text->paths, std::get<GptOptions>(config.model).context, {begin, end});
  }
  auto const& regression = std::get<RegressionData>(config.data);
  auto const& widths = std::get<MlpOptions>(config.model).widths;
  auto whole = make_regression_dataset(regression.samples, widths.front(), widths.back(), regression.seed);
  auto const position = [&](double part) { return std::llround(part * static_cast<double>(regression.samples)); };
  return std::make_unique<DatasetPart>(std::move(whole), position(begin), position(end));
}

}  // namespace

std::vector<std::string> const& run_sections() {
  static std::vector<std::string> const sections = {"model", "data", "train", "plan", "checkpoint", "cluster", "log"};
  return sections;
}

RunConfig read_run_config(Settings& settings) {
  RunConfig config;
  config.model = read_model(settings);
  auto const* gpt = std::get_if<GptOptions>(&config.model);
  config.data = read_data(settings, gpt != nullptr);
  if (gpt != nullptr && gpt->vocabulary < 256)
    settings.fail("model.vocabulary", "at least 256, as text is read as bytes");
  config.validation = settings.share("data.validation", config.validation);
  read_train(settings, config);
  config.balance = read_plan(settings, config.optimizer);
  config.plan_file = settings.path("plan.file", "");
  read_checkpoint(settings, config);
  config.cluster_file = settings.path("cluster.file", "");
  config.collectives_budget_s = settings.seconds("cluster.collectives_budget", config.collectives_budget_s);
  config.log_level =
      parse_log_level(settings.choice("log.level", {"debug", "info", "warning", "error", "off"}, "info"));
  settings.finish();
  return config;
}

BalanceOptions read_balance_options(Settings& settings) {
  auto balance = read_plan(settings, read_optimizer(settings));
  settings.finish();
  return balance;
}

Model make_model(RunConfig const& config) {
  if (auto const* gpt = std::get_if<GptOptions>(&config.model)) return make_gpt(*gpt);
  return make_mlp(std::get<MlpOptions>(config.model));
}

std::unique_ptr<Dataset> make_training_data(RunConfig const& config) {
  return make_data(config, 0.0, 1.0 - config.validation);
}

std::unique_ptr<Dataset> make_validation_data(RunConfig const& config) {
  if (config.validation == 0.0 || config.evaluate_batches == 0) return nullptr;
  return make_data(config, 1.0 - config.validation, 1.0);
}

std::int64_t largest_micro_batch(RunConfig const& config) {
  auto const& sizes = config.balance.micro_batches;
  return sizes.empty() ? config.balance.global_batch : *std::max_element(sizes.begin(), sizes.end());
}

Batch profiling_sample(RunConfig const& config, Dataset const& data) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(largest_micro_batch(config)));
  // Small data sets hold fewer samples than a micro-batch; costs do not depend on values.
  for (std::size_t sample = 0; sample < indices.size(); ++sample) {
    indices[sample] = static_cast<std::int64_t>(sample) % data.size();
  }
  return data.samples(indices);
}

AutoPlanOptions auto_plan_options(RunConfig const& config) {
  AutoPlanOptions options;
  options.balance = config.balance;
  options.profile.samples.clear();
  options.profile.dtype = config.dtype;
  options.profile.optimizer = config.optimizer;
  options.profile.seed = config.seed;
  options.measure.budget_s = config.collectives_budget_s;
  return options;
}

}  // namespace ballast
