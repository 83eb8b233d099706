// SPDX-License-Identifier: Apache-2.0
/// The shipped multilayer perceptron.
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/model/model.hpp"

namespace ballast {

/// Widths of the layers from input to output, for example {16, 64, 64, 10}.
struct MlpOptions {
  std::vector<std::int64_t> widths;
  friend bool operator==(MlpOptions const&, MlpOptions const&) = default;
};

/// Returns the chain linear0 .. with GELU between, squared-error loss: inputs (B, widths.front()), outputs and targets
/// (B, widths.back()). @throws InvalidArgument for fewer than two widths or widths below 1.
Model make_mlp(MlpOptions const& options);

}  // namespace ballast
