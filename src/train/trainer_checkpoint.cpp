// SPDX-License-Identifier: Apache-2.0
// Saving, resuming and gathering: everything by logical tensor names, so that nothing of it depends on the plan.
#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/base/log.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/device/tensor_types.hpp"
#include "ballast/plan/shares.hpp"
#include "trainer_impl.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ballast {
namespace {

constexpr char const* kTrainingSchema = "ballast.training/1";
constexpr int kParameterTag = 3 * 8192;  // the stage runner uses those below

/// Names and shapes of a layer's parameters, in the order of its flat buffer.
nlohmann::json describe_parameters(detail::ShardUnit const& unit) {
  nlohmann::json json = nlohmann::json::array();
  for (auto const& parameter : unit.parameters())
    json.push_back({{"name", parameter.name}, {"shape", parameter.shape}});
  return json;
}

}  // namespace

nlohmann::json detail::optimizer_json(OptimizerOptions const& options) {
  nlohmann::json json{{"kind", to_string(kind_of(options))}};
  if (auto const* adamw = std::get_if<AdamW>(&options)) {
    json["learning_rate"] = adamw->learning_rate;
    json["beta1"] = adamw->beta1;
    json["beta2"] = adamw->beta2;
    json["epsilon"] = adamw->epsilon;
    json["weight_decay"] = adamw->weight_decay;
  } else {
    auto const& sgd = std::get<Sgd>(options);
    json["learning_rate"] = sgd.learning_rate;
    json["momentum"] = sgd.momentum;
    json["weight_decay"] = sgd.weight_decay;
  }
  return json;
}

std::vector<TensorShard> Trainer::Impl::shards() {
  std::vector<TensorShard> shards;
  if (!runner_) return shards;
  auto const states = state_names(optimizer_);
  for (auto& unit : runner_->units()) {
    for (std::size_t index = 0; index < unit.parameters().size(); ++index) {
      auto const& parameter = unit.parameters()[index];
      auto const& [elements, shard] = unit.kept()[index];
      if (elements.size() == 0) continue;
      auto const add = [&](std::string name, at::Tensor const& tensor) {
        shards.push_back(
            {std::move(name), parameter.shape, plan_.dtype, elements.begin, elements.end, tensor.data_ptr()});
      };
      add(fmt::format("parameters/{}/{}", unit.name(), parameter.name), shard.weights);
      for (std::size_t state = 0; state < states.size(); ++state) {
        add(fmt::format("optimizer/{}/{}/{}", unit.name(), parameter.name, states[state]), shard.states[state]);
      }
    }
    for (auto const& [name, buffer] : unit.layer().buffers()) {
      if (buffer.numel() == 0) continue;
      auto const type = buffer.scalar_type() == at::kBool ? DataType::uint8 : to_data_type(buffer.scalar_type());
      shards.push_back({fmt::format("buffers/{}/{}", unit.name(), name), buffer.sizes().vec(), type, 0, buffer.numel(),
                        buffer.data_ptr()});
    }
  }
  return shards;
}

std::string Trainer::Impl::metadata(std::string const& config) const {
  nlohmann::json const json{{"schema", kTrainingSchema},
                            {"step", num_steps_},
                            {"seed", static_cast<std::int64_t>(options_.seed)},
                            {"model", model_.name()},
                            {"layers", model_.layer_names()},
                            {"dtype", to_string(plan_.dtype)},
                            {"optimizer", detail::optimizer_json(optimizer_)},
                            {"config", parse_json(config, "the configuration to save")},
                            {"plan", parse_json(to_json(plan_), "plan")}};
  return json.dump();
}

std::filesystem::path Trainer::Impl::save(std::filesystem::path const& directory, std::string const& config,
                                          SaveOptions const& options) {
  std::vector<TensorShard> mine;
  std::string text;
  collectively(world_, [&] {
    mine = shards();
    text = metadata(config);
  });
  return save_checkpoint(world_, directory, num_steps_, mine, text, options);
}

void Trainer::Impl::require_same_training(CheckpointInfo const& checkpoint,
                                          std::vector<TensorShard> const& shards) const {
  auto const json = parse_json(checkpoint.metadata, checkpoint.step_directory.string());
  JsonReader reader(json, checkpoint.step_directory.string());
  reader.schema(kTrainingSchema);
  std::vector<std::string> differences;
  auto const compare = [&](char const* what, auto const& there, auto const& here) {
    if (there != here) differences.push_back(fmt::format("{} {} there, {} here", what, there, here));
  };
  compare("model", reader.text("model"), model_.name());
  compare("layers", fmt::format("{}", fmt::join(reader.texts("layers"), ",")),
          fmt::format("{}", fmt::join(model_.layer_names(), ",")));
  compare("dtype", reader.text("dtype"), to_string(plan_.dtype));
  compare("optimizer", reader.object("optimizer").text("kind"), to_string(kind_of(optimizer_)));
  compare("seed", reader.integer("seed"), static_cast<std::int64_t>(options_.seed));
  if (differences.empty()) {
    for (auto const& shard : shards) {
      auto const found = std::find_if(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                      [&](CheckpointTensor const& tensor) { return tensor.name == shard.name; });
      if (found == checkpoint.tensors.end()) {
        differences.push_back(fmt::format("{} is not there", shard.name));
      } else if (found->shape != shard.shape || found->type != shard.type) {
        differences.push_back(fmt::format("{} ({}) {} there, ({}) {} here", shard.name, fmt::join(found->shape, ", "),
                                          to_string(found->type), fmt::join(shard.shape, ", "), to_string(shard.type)));
      }
    }
  }
  if (differences.empty()) return;
  throw DataError(fmt::format("{} belongs to another training: {}", checkpoint.step_directory.string(),
                              fmt::join(differences, "; ")));
}

bool Trainer::Impl::try_resume(std::filesystem::path const& step_directory, std::string& first_fault) {
  auto const skip = [&](DataError const& error) {
    if (first_fault.empty()) first_fault = error.what();
    if (world_.rank() == 0) log(LogLevel::warning, fmt::format("skipping a damaged checkpoint: {}", error.what()));
    return false;
  };
  CheckpointInfo checkpoint;
  try {
    checkpoint = read_manifest(world_, step_directory);
  } catch (DataError const& error) {
    return skip(error);
  }
  std::vector<TensorShard> mine;
  collectively(world_, [&] {
    mine = shards();
    require_same_training(checkpoint, mine);
  });
  try {
    load_checkpoint(world_, checkpoint, mine);
  } catch (DataError const& error) {
    return skip(error);
  }
  num_steps_ = checkpoint.step;
  return true;
}

bool Trainer::Impl::resume(std::filesystem::path const& directory) {
  // Rank 0 looks, so that all try the same directories in the same order, whatever a shared file system shows them.
  std::string list;
  collectively(world_, [&] {
    if (world_.rank() != 0) return;
    nlohmann::json names = nlohmann::json::array();
    for (auto const& path : committed_steps(directory)) names.push_back(path.string());
    list = names.dump();
  });
  list = broadcast_text(world_, std::move(list), 0);
  auto const names = parse_json(list, "list of checkpoints");
  if (names.empty()) return false;
  std::string first_fault;
  for (auto const& name : names) {
    if (try_resume(name.get<std::string>(), first_fault)) return true;
  }
  throw DataError(fmt::format("none of {} checkpoints in {} can be loaded; the newest: {}", names.size(),
                              directory.string(), first_fault));
}

std::vector<WholeTensor> Trainer::Impl::gather_layer(int layer, int stage) {
  auto const& owner = plan_.replicas.front().stages[static_cast<std::size_t>(stage)];
  detail::ShardUnit* const unit =
      stage == stage_ ? &runner_->units()[static_cast<std::size_t>(layer - owner.layers.begin)] : nullptr;
  // Rank 0 need not know the layer: its owner says what it consists of.
  auto const text =
      broadcast_text(world_, unit ? describe_parameters(*unit).dump() : std::string(), owner.ranks.front());
  if (world_.rank() != 0) {
    if (unit && unit->weights().numel() > 0) {
      world_.send(unit->weights().const_data_ptr(), unit->weights().numel(), plan_.dtype, 0, kParameterTag).wait();
    }
    return {};
  }

  std::vector<WholeTensor> result;
  std::int64_t size = 0;
  for (auto const& parameter : parse_json(text, "parameters of a layer")) {
    auto const shape = parameter.at("shape").get<std::vector<std::int64_t>>();
    result.push_back(
        {fmt::format("parameters/{}/{}", model_.layer_name(layer), parameter.at("name").get<std::string>()),
         at::empty(shape, to_scalar_type(plan_.dtype))});
    size += result.back().tensor.numel();
  }
  auto const flat = at::empty({size}, to_scalar_type(plan_.dtype));
  auto const intervals = shard_intervals(size, owner.shard_share, size_of(plan_.dtype));
  for (std::size_t position = 0; position < intervals.size(); ++position) {
    auto const [begin, end] = intervals[position];
    if (begin == end) continue;
    auto const part = flat.narrow(0, begin, end - begin);
    if (owner.ranks[position] == 0) {
      part.copy_(unit->weights());
    } else {
      world_.recv(part.data_ptr(), end - begin, plan_.dtype, owner.ranks[position], kParameterTag).wait();
    }
  }
  std::int64_t begin = 0;
  for (auto& [name, tensor] : result) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return result;
}

std::vector<WholeTensor> Trainer::Impl::gather_parameters() {
  std::vector<WholeTensor> result;
  guarded([&](std::string& doing) {
    auto const& stages = plan_.replicas.front().stages;
    for (int stage = 0; stage < std::ssize(stages); ++stage) {
      auto const& layers = stages[static_cast<std::size_t>(stage)].layers;
      for (int layer = layers.begin; layer < layers.end; ++layer) {
        doing = fmt::format("gathering the parameters of layer {}", model_.layer_name(layer));
        translate_torch_errors(doing, [&] {
          for (auto& tensor : gather_layer(layer, stage)) result.push_back(std::move(tensor));
        });
      }
    }
  });
  return result;
}

}  // namespace ballast
