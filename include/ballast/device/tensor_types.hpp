// SPDX-License-Identifier: Apache-2.0
/// Between Ballast's element types and LibTorch's, and from LibTorch's errors to Ballast's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>

#include "ballast/comm/data_type.hpp"

namespace ballast {

c10::ScalarType to_scalar_type(DataType type);
/// @throws InvalidArgument for a type that Ballast does not carry.
DataType to_data_type(c10::ScalarType type);

/// Seeds the default CPU generator, from which modules initialise and dropout draws.
void seed_default_generator(std::uint64_t seed);

/// Runs `work`; c10::OutOfMemoryError becomes DeviceError and any other c10::Error Error, both with `doing` (what, for
/// which layer, in which phase), without stack traces; the DeviceError adds bytes in use and capacity.
void translate_torch_errors(std::string const& doing, std::function<void()> const& work);

}  // namespace ballast
