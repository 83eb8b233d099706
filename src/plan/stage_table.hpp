// SPDX-License-Identifier: Apache-2.0
/// The cut over stages that were each fitted exactly: slow, so for small problems and for memory that is very tight.
#pragma once

#include "ballast/plan/cut.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace ballast::detail {

/// Returns how many stages `cut_fitted` may ask for: classes x numbers in flight x ranges of layers.
std::int64_t num_fitted_stages(CutProblem const& problem);

/// Fits the stage `layers` on a unit of `unit_class`, `position`-th from the end. Returns the seconds that a
/// micro-batch takes beyond the class's seconds (recompute, moved samples), infinity if it does not fit.
using FitStage = std::function<double(int unit_class, LayerRange layers, int position)>;

/// Returns what `cut` would return if it knew what `fit` knows: memory and seconds_per_byte of the classes are not
/// looked at. `fit` is asked at most once for each class, number in flight and range.
CutResult cut_fitted(CutProblem const& problem, FitStage const& fit);

}  // namespace ballast::detail
