// SPDX-License-Identifier: Apache-2.0
#include "update_kernels.hpp"

#include <cmath>

namespace ballast::detail {

template <class T>
void update_elements(AdamW const& rule, double weight_decay, std::int64_t step, double gradient_scale,
                     std::int64_t size, T* __restrict weights, T const* __restrict gradients, T* __restrict exp_avg,
                     T* __restrict exp_avg_sq) {
  auto const count = static_cast<double>(step);
  auto const scale = static_cast<T>(gradient_scale);
  auto const keep = static_cast<T>(1.0 - rule.learning_rate * weight_decay);
  auto const first = static_cast<T>(1.0 - rule.beta1);
  auto const second = static_cast<T>(1.0 - rule.beta2);
  auto const beta2 = static_cast<T>(rule.beta2);
  auto const epsilon = static_cast<T>(rule.epsilon);
  auto const step_size = static_cast<T>(rule.learning_rate / (1.0 - std::pow(rule.beta1, count)));
  auto const square_scale = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(rule.beta2, count)));
  for (std::int64_t element = 0; element < size; ++element) {
    T const gradient = scale * gradients[element];
    T const mean = exp_avg[element] + first * (gradient - exp_avg[element]);
    T const square = beta2 * exp_avg_sq[element] + second * gradient * gradient;
    exp_avg[element] = mean;
    exp_avg_sq[element] = square;
    weights[element] = keep * weights[element] - step_size * (mean / (square_scale * std::sqrt(square) + epsilon));
  }
}

template <class T>
void update_elements(Sgd const& rule, double weight_decay, double gradient_scale, std::int64_t size,
                     T* __restrict weights, T const* __restrict gradients, T* __restrict velocity) {
  auto const scale = static_cast<T>(gradient_scale);
  auto const decay = static_cast<T>(weight_decay);
  auto const momentum = static_cast<T>(rule.momentum);
  auto const learning_rate = static_cast<T>(rule.learning_rate);
  if (!velocity) {
    for (std::int64_t element = 0; element < size; ++element) {
      weights[element] -= learning_rate * (scale * gradients[element] + decay * weights[element]);
    }
    return;
  }
  for (std::int64_t element = 0; element < size; ++element) {
    velocity[element] = momentum * velocity[element] + (scale * gradients[element] + decay * weights[element]);
    weights[element] -= learning_rate * velocity[element];
  }
}

template void update_elements(AdamW const&, double, std::int64_t, double, std::int64_t, float*, float const*, float*, float*);
template void update_elements(AdamW const&, double, std::int64_t, double, std::int64_t, double*, double const*, double*,
                              double*);
template void update_elements(Sgd const&, double, double, std::int64_t, float*, float const*, float*);
template void update_elements(Sgd const&, double, double, std::int64_t, double*, double const*, double*);

}  // namespace ballast::detail
