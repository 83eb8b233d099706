// SPDX-License-Identifier: Apache-2.0
#include "plans.hpp"

#include "ballast/base/seed.hpp"
#include "ballast/comm/collective.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <stdlib.h>

namespace ballast::test {
namespace {

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::int64_t vocabulary, std::int64_t context, bool masked)
      : vocabulary_(vocabulary), context_(context), masked_(masked) {}
  std::int64_t size() const override { return 1000; }
  Batch samples(std::span<std::int64_t const> indices) const override {
    auto inputs = at::empty({std::ssize(indices), context_}, at::kLong);
    auto targets = at::empty_like(inputs);
    for (std::int64_t row = 0; row < std::ssize(indices); ++row) {
      auto* input = inputs.data_ptr<std::int64_t>() + row * context_;
      auto* target = targets.data_ptr<std::int64_t>() + row * context_;
      auto const sample = static_cast<std::uint64_t>(indices[static_cast<std::size_t>(row)]);
      auto const hash = derive_seed(17, sample);
      std::int64_t before = static_cast<std::int64_t>(hash % 7);
      std::int64_t token = static_cast<std::int64_t>(hash / 7 % 11);
      for (std::int64_t place = 0; place < context_; ++place) {
        std::int64_t const next = (3 * token + before + 1) % vocabulary_;
        input[place] = token % vocabulary_;
        target[place] =
            masked_ && derive_seed(hash, static_cast<std::uint64_t>(place)) % (2 + sample % 3) == 0 ? -1 : next;
        before = std::exchange(token, next);
      }
    }
    return {{inputs}, targets};
  }

 private:
  std::int64_t vocabulary_;
  std::int64_t context_;
  bool masked_;
};

at::Tensor parameter(c10::IntArrayRef shape) { return (0.5 * at::randn(shape)).set_requires_grad(true); }

/// A layer written as a function of its inputs and parameters.
class FunctionLayer final : public Layer {
 public:
  using Function = std::function<Tensors(Tensors const& inputs, std::vector<NamedTensor>& parameters, bool training)>;
  FunctionLayer(std::vector<NamedTensor> parameters, Function function)
      : parameters_(std::move(parameters)), function_(std::move(function)) {}
  Tensors forward(Tensors const& inputs) override { return function_(inputs, parameters_, training_); }
  std::vector<NamedTensor> parameters() override { return parameters_; }
  void set_training(bool training) override { training_ = training; }

 private:
  std::vector<NamedTensor> parameters_;
  Function function_;
  bool training_ = true;
};

void add(Model& model, std::string name, std::function<std::vector<NamedTensor>()> parameters,
         FunctionLayer::Function function) {
  model.add(std::move(name), [parameters, function]() -> std::unique_ptr<Layer> {
    return std::make_unique<FunctionLayer>(parameters(), function);
  });
}

std::vector<NamedTensor> linear(std::int64_t from, std::int64_t to) {
  return {{"weight", parameter({to, from})}, {"bias", parameter({to})}};
}

at::Tensor apply(std::vector<NamedTensor>& linear, at::Tensor const& input) {
  return at::linear(input, linear[0].tensor, linear[1].tensor);
}

}  // namespace

Stage stage(int begin, int end, std::vector<int> ranks, std::vector<std::int64_t> batch_share,
            std::vector<std::int64_t> shard_share, std::vector<int> recompute) {
  auto const size = static_cast<std::int64_t>(ranks.size());
  if (batch_share.empty()) {
    for (std::int64_t rank = 0; rank < size; ++rank) batch_share.push_back(4 / size + (rank < 4 % size ? 1 : 0));
  }
  if (shard_share.empty()) shard_share.assign(ranks.size(), 1);
  Stage stage;
  stage.layers = {begin, end};
  stage.ranks = std::move(ranks);
  stage.batch_share = std::move(batch_share);
  stage.shard_share = std::move(shard_share);
  stage.recompute = std::move(recompute);
  return stage;
}

Plan make_plan(Model const& model, OptimizerOptions const& optimizer, std::vector<Stage> stages,
               PlanOptions const& options) {
  Plan plan;
  plan.layers = model.layer_names();
  plan.dtype = options.dtype;
  plan.optimizer = kind_of(optimizer);
  plan.schedule = options.schedule;
  plan.num_micro_batches = options.num_micro_batches;
  plan.global_batch = options.num_micro_batches * stages.front().micro_batch();
  plan.replicas = {Replica{std::move(stages)}};
  return plan;
}

std::unique_ptr<Dataset> make_token_dataset(std::int64_t vocabulary, std::int64_t context, bool masked) {
  return std::make_unique<TokenDataset>(vocabulary, context, masked);
}

Model make_rails() {
  Model model("rails");
  add(
      model, "split",
      [] {
        return std::vector<NamedTensor>{{"scale", parameter({8})}};
      },
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors {
        auto const& x = inputs[0];
        auto const scaled = x * parameters[0].tensor;
        // Integer, and not contiguous: both must survive a boundary.
        return {scaled, (x.sum(1) > 0).to(at::kLong), scaled.unsqueeze(1).expand({x.size(0), 2, 8})};
      });
  add(
      model, "mix",
      [] {
        auto result = linear(8, 6);
        result.push_back({"table", parameter({2, 6})});
        return result;
      },
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors {
        auto const chosen = parameters[2].tensor.index_select(0, inputs[1]);
        // Returns two of its inputs as they are.
        return {apply(parameters, inputs[0]) * chosen, inputs[1], inputs[2]};
      });
  add(
      model, "curve", [] { return std::vector<NamedTensor>{}; },
      [](Tensors const& inputs, auto&, bool) -> Tensors {
        return {at::gelu(inputs[0]), inputs[1], inputs[2], at::ones_like(inputs[0])};
      });
  add(
      model, "drop", [] { return linear(6, 6); },
      // The last input is not used: the layer before gets a gradient of zero for it.
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors {
        return {apply(parameters, inputs[0]) + inputs[2].sum(1).narrow(1, 0, 6), inputs[1]};
      });
  add(
      model, "out", [] { return linear(6, 3); },
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors {
        return {apply(parameters, inputs[0]) * (1 + inputs[1]).unsqueeze(1)};
      });
  model.set_loss(squared_error_loss);
  return model;
}

Model make_dropout_model() {
  Model model("dropout");
  add(
      model, "in", [] { return linear(8, 16); },
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors {
        return {at::gelu(apply(parameters, inputs[0]))};
      });
  add(
      model, "middle", [] { return linear(16, 16); },
      [](Tensors const& inputs, auto& parameters, bool training) -> Tensors {
        return {at::dropout(at::gelu(apply(parameters, inputs[0])), 0.5, training)};
      });
  add(
      model, "out", [] { return linear(16, 3); },
      [](Tensors const& inputs, auto& parameters, bool) -> Tensors { return {apply(parameters, inputs[0])}; });
  model.set_loss(squared_error_loss);
  return model;
}

SharedFolder::SharedFolder(Communicator& world) : world_(world) {
  std::string text;
  if (world.rank() == 0) {
    text = (std::filesystem::temp_directory_path() / "ballast-train-XXXXXX").string();
    if (::mkdtemp(text.data()) == nullptr) text.clear();
  }
  path_ = broadcast_text(world, std::move(text), 0);
}

SharedFolder::~SharedFolder() {
  try {
    world_.barrier();  // for all ranks to have read what they wanted
  } catch (...) {
    // The test failed on another rank, which has said so.
  }
  std::error_code ignored;
  if (world_.rank() == 0 && !path_.empty()) std::filesystem::remove_all(path_, ignored);
}

double relative_difference(std::vector<WholeTensor> const& a, std::vector<WholeTensor> const& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  for (auto const& whole : b) largest = std::max(largest, whole.tensor.abs().max().item<double>());
  double result = 0.0;
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (a[index].name != b[index].name || a[index].tensor.sizes() != b[index].tensor.sizes()) {
      return std::numeric_limits<double>::infinity();
    }
    double const scale = std::max(b[index].tensor.abs().max().item<double>(), 1e-3 * largest);
    double const difference = (a[index].tensor - b[index].tensor).abs().max().item<double>() / scale;
    if (!(difference <= result)) result = difference;  // also a NaN
  }
  return result;
}

bool bit_equal(std::vector<WholeTensor> const& a, std::vector<WholeTensor> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](WholeTensor const& left, WholeTensor const& right) {
    return left.name == right.name && left.tensor.sizes() == right.tensor.sizes() &&
           left.tensor.scalar_type() == right.tensor.scalar_type() &&
           std::memcmp(left.tensor.const_data_ptr(), right.tensor.const_data_ptr(), left.tensor.nbytes()) == 0;
  });
}

}  // namespace ballast::test
