// SPDX-License-Identifier: Apache-2.0
#include "ballast/train/data.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/seed.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

namespace ballast {
namespace {

__extension__ typedef unsigned __int128 Wide;

/// Returns a number in [-1, 1) from 53 bits of a seed. No distribution of std::, whose results differ between libraries.
double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-52 - 1.0; }

/// y = sum over hidden units h of a(h, y) u / (1 + u^2) with u = offset(h) + sum over inputs of w(h, x) x.
///
/// Smooth, and made of operations that IEEE 754 defines to the last bit, so that the data are the same everywhere.
class RegressionDataset final : public Dataset {
 public:
  RegressionDataset(std::int64_t size, std::int64_t num_inputs, std::int64_t num_outputs, std::uint64_t seed)
      : size_(size),
        num_inputs_(num_inputs),
        num_outputs_(num_outputs),
        seed_(derive_seed(seed, "regression samples")) {
    std::uint64_t const function = derive_seed(seed, "regression function");
    std::uint64_t counter = 0;
    auto const fill = [&](std::vector<double>& values, std::int64_t count) {
      for (std::int64_t value = 0; value < count; ++value) values.push_back(uniform(derive_seed(function, counter++)));
    };
    fill(input_weights_, kNumHidden * num_inputs);
    fill(offsets_, kNumHidden);
    fill(output_weights_, num_outputs * kNumHidden);
  }

  std::int64_t size() const override { return size_; }
  Batch samples(std::span<std::int64_t const> indices) const override { return {inputs(indices), targets(indices)}; }

  Tensors inputs(std::span<std::int64_t const> indices) const override {
    auto result = at::empty({std::ssize(indices), num_inputs_}, at::kFloat);
    auto* next = result.mutable_data_ptr<float>();
    for (auto const index : indices) {
      for (std::int64_t input = 0; input < num_inputs_; ++input) *next++ = static_cast<float>(value(index, input));
    }
    return {result};
  }

  at::Tensor targets(std::span<std::int64_t const> indices) const override {
    auto result = at::empty({std::ssize(indices), num_outputs_}, at::kFloat);
    auto* next = result.mutable_data_ptr<float>();
    std::vector<double> hidden(kNumHidden);
    for (auto const index : indices) {
      for (std::size_t unit = 0; unit < kNumHidden; ++unit) {
        double sum = offsets_[unit];
        for (std::int64_t input = 0; input < num_inputs_; ++input) {
          sum += input_weights_[unit * static_cast<std::size_t>(num_inputs_) + static_cast<std::size_t>(input)] *
                 value(index, input);
        }
        hidden[unit] = sum / (1.0 + sum * sum);
      }
      for (std::size_t output = 0; output < static_cast<std::size_t>(num_outputs_); ++output) {
        double sum = 0.0;
        for (std::size_t unit = 0; unit < kNumHidden; ++unit)
          sum += output_weights_[output * kNumHidden + unit] * hidden[unit];
        *next++ = static_cast<float>(sum);
      }
    }
    return result;
  }

 private:
  static constexpr std::size_t kNumHidden = 8;

  double value(std::int64_t index, std::int64_t input) const {
    return uniform(derive_seed(seed_, static_cast<std::uint64_t>(index * num_inputs_ + input)));
  }

  std::int64_t size_;
  std::int64_t num_inputs_;
  std::int64_t num_outputs_;
  std::uint64_t seed_;
  std::vector<double> input_weights_;   // (hidden, inputs)
  std::vector<double> offsets_;         // (hidden)
  std::vector<double> output_weights_;  // (outputs, hidden)
};

}  // namespace

std::vector<std::int64_t> sample_indices(std::uint64_t seed, std::int64_t step, std::int64_t global_batch,
                                         std::int64_t dataset_size) {
  if (step < 0 || global_batch < 0 || dataset_size < 1) {
    throw InvalidArgument(
        fmt::format("cannot draw {} samples for step {} from a data set of {}", global_batch, step, dataset_size));
  }
  std::uint64_t const order = derive_seed(derive_seed(seed, "data order"), static_cast<std::uint64_t>(step));
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(global_batch));
  for (std::int64_t sample = 0; sample < global_batch; ++sample) {
    // The high half of bits x size is uniform over [0, size) up to size / 2^64.
    Wide const bits = derive_seed(order, static_cast<std::uint64_t>(sample));
    indices.push_back(static_cast<std::int64_t>((bits * static_cast<std::uint64_t>(dataset_size)) >> 64));
  }
  return indices;
}

std::unique_ptr<Dataset> make_regression_dataset(std::int64_t size, std::int64_t num_inputs, std::int64_t num_outputs,
                                                 std::uint64_t seed) {
  if (size < 1 || num_inputs < 1 || num_outputs < 1) {
    throw InvalidArgument(
        fmt::format("a regression data set needs positive numbers, found {} samples, {} inputs, {} outputs", size,
                    num_inputs, num_outputs));
  }
  return std::make_unique<RegressionDataset>(size, num_inputs, num_outputs, seed);
}

}  // namespace ballast
