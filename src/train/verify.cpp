// SPDX-License-Identifier: Apache-2.0
#include "ballast/train/verify.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

/// A parameter that is rounding noise only (its gradient is zero in exact arithmetic, as with the biases of attention's
/// keys) is compared with this part of the model's largest value, not with itself.
constexpr double kNoiseFloor = 1e-3;

double largest(at::Tensor const& tensor) { return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>(); }

/// Returns a difference that is never hidden by a NaN.
double worse(double a, double b) { return std::isnan(a) || std::isnan(b) ? INFINITY : std::max(a, b); }

struct Comparison {
  double largest_difference = 0.0;
  std::string first_different;  ///< layer name
};

/// "parameters/<layer>/<name>" -> layer
std::string layer_of(std::string const& name) {
  auto const begin = name.find('/') + 1;
  return name.substr(begin, name.find('/', begin) - begin);
}

Comparison compare(std::vector<NamedTensor> const& reference, std::vector<WholeTensor> const& plan, double tolerance) {
  if (reference.size() != plan.size()) {
    throw Error(ErrorKind::failed,
                fmt::format("the plan has {} parameters, the reference {}", plan.size(), reference.size()));
  }
  double floor = 0.0;
  for (auto const& parameter : reference) floor = std::max(floor, kNoiseFloor * largest(parameter.tensor));
  Comparison result;
  for (std::size_t index = 0; index < reference.size(); ++index) {
    auto const& [name, tensor] = reference[index];
    if (name != plan[index].name || tensor.sizes() != plan[index].tensor.sizes()) {
      throw Error(
          ErrorKind::failed,
          fmt::format("parameter {} of the plan is {} in the reference, or has another shape", plan[index].name, name));
    }
    double const scale = std::max(largest(tensor), floor);
    double const absolute = largest(plan[index].tensor - tensor);
    double const difference = absolute == 0.0 ? 0.0 : absolute / scale;
    result.largest_difference = worse(result.largest_difference, difference);
    if (!(difference <= tolerance) && result.first_different.empty()) result.first_different = layer_of(name);
  }
  return result;
}

nlohmann::json to_json_value(VerifyReport const& report) {
  // JSON has no infinity; a difference beyond every tolerance is written as the largest number.
  auto const finite = [](double value) { return std::min(value, std::numeric_limits<double>::max()); };
  return {{"reference_losses", report.reference_losses},
          {"loss_difference", finite(report.largest_loss_difference)},
          {"parameter_difference", finite(report.largest_parameter_difference)},
          {"first_different_layer", report.first_different_layer},
          {"equal", report.equal}};
}

}  // namespace

VerifyReport verify_plan(Model const& model, Plan plan, OptimizerOptions const& optimizer, Dataset const& data,
                         std::int64_t num_steps, std::uint64_t seed, Communicator& world, double tolerance) {
  collectively(world, [&] {
    if (num_steps < 1) throw InvalidArgument(fmt::format("verifying needs at least one step, found {}", num_steps));
  });
  plan.dtype = DataType::float64;
  plan.optimizer = kind_of(optimizer);

  VerifyReport report;
  Trainer trainer(model, std::move(plan), optimizer, world, {.seed = seed, .device = {}, .dilation = 0.0});
  std::vector<WholeTensor> after_first;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    report.plan_losses.push_back(trainer.step(data).loss);
    if (step == 0) after_first = trainer.gather_parameters();
  }
  auto const after_last = trainer.gather_parameters();

  std::string text;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    auto const batch = trainer.plan().global_batch;
    auto const first = train_reference(model, optimizer, data, batch, 1, DataType::float64, seed);
    auto const last = train_reference(model, optimizer, data, batch, num_steps, DataType::float64, seed);
    report.first_different_layer = compare(first.parameters, after_first, tolerance).first_different;
    report.largest_parameter_difference = compare(last.parameters, after_last, tolerance).largest_difference;
    report.reference_losses = last.losses;
    for (std::size_t step = 0; step < last.losses.size(); ++step) {
      double const difference = std::abs(report.plan_losses[step] - last.losses[step]);
      report.largest_loss_difference =
          worse(report.largest_loss_difference, difference == 0.0 ? 0.0 : difference / std::abs(last.losses[step]));
    }
    report.equal = report.largest_loss_difference <= tolerance && report.largest_parameter_difference <= tolerance &&
                   report.first_different_layer.empty();
    text = to_json_value(report).dump();
  });
  auto const json = parse_json(broadcast_text(world, std::move(text), 0), "verification");
  report.reference_losses = json.at("reference_losses").get<std::vector<double>>();
  report.largest_loss_difference = json.at("loss_difference").get<double>();
  report.largest_parameter_difference = json.at("parameter_difference").get<double>();
  report.first_different_layer = json.at("first_different_layer").get<std::string>();
  report.equal = json.at("equal").get<bool>();
  return report;
}

}  // namespace ballast
