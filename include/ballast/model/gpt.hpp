// SPDX-License-Identifier: Apache-2.0
/// The shipped language model: GPT-2's architecture (Radford et al. 2019).
#pragma once

#include <cstdint>

#include "ballast/model/model.hpp"

namespace ballast {

/// B samples of T tokens; C channels, V vocabulary.
struct GptOptions {
  std::int64_t vocabulary = 256;   ///< 256: bytes
  std::int64_t context = 128;      ///< T
  std::int64_t num_layers = 6;     ///< blocks
  std::int64_t num_heads = 4;
  std::int64_t channels = 128;     ///< C, a multiple of num_heads
  friend bool operator==(GptOptions const&, GptOptions const&) = default;
};

/// Returns the chain embed, block0 .. block(n-1), head: inputs (B, T) int64, outputs logits (B, T, V), targets (B, T).
/// Block: x + attention(norm(x)), then x + mlp(norm(x)) with 4 C hidden and GELU; causal attention; learned positions;
/// head: norm and an untied linear without bias. Weights N(0, 0.02), residual projections / sqrt(2 layers).
/// @throws InvalidArgument for options that do not fit together.
Model make_gpt(GptOptions const& options);

}  // namespace ballast
