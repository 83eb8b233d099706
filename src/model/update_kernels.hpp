// SPDX-License-Identifier: Apache-2.0
/// The update rules element by element, on plain arrays.
#pragma once

#include "ballast/model/optimizer.hpp"

#include <cstdint>

namespace ballast::detail {

// LibTorch's fused kernels round the last elements of an array, which do not fill a vector, differently from the
// others, so their result depends on where shards are cut. These loops are compiled so that every element is rounded
// alike; they are bound by memory as those are.

/// Update number `step` of `size` elements with the gradients x `gradient_scale`; `T` is float or double.
template <class T>
void update_elements(AdamW const& rule, double weight_decay, std::int64_t step, double gradient_scale, std::int64_t size,
                     T* weights, T const* gradients, T* exp_avg, T* exp_avg_sq);

/// `velocity` is null when the rule has no momentum.
template <class T>
void update_elements(Sgd const& rule, double weight_decay, double gradient_scale, std::int64_t size, T* weights,
                     T const* gradients, T* velocity);

}  // namespace ballast::detail
