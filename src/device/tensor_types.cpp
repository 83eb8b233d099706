// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/tensor_types.hpp"

#include "ballast/base/error.hpp"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace ballast {
namespace {

/// The message alone; LibTorch's operators add where in its sources they stand.
std::string without_trace(c10::Error const& error) {
  std::string text = error.what_without_backtrace();
  if (auto const trace = text.find("\nException raised from"); trace != text.npos) text.resize(trace);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

c10::ScalarType to_scalar_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return c10::ScalarType::Byte;
    case DataType::int32:
      return c10::ScalarType::Int;
    case DataType::int64:
      return c10::ScalarType::Long;
    case DataType::bfloat16:
      return c10::ScalarType::BFloat16;
    case DataType::float32:
      return c10::ScalarType::Float;
    case DataType::float64:
      return c10::ScalarType::Double;
  }
  throw InvalidArgument(fmt::format("no such element type: {}", static_cast<int>(type)));
}

DataType to_data_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Byte:
      return DataType::uint8;
    case c10::ScalarType::Int:
      return DataType::int32;
    case c10::ScalarType::Long:
      return DataType::int64;
    case c10::ScalarType::BFloat16:
      return DataType::bfloat16;
    case c10::ScalarType::Float:
      return DataType::float32;
    case c10::ScalarType::Double:
      return DataType::float64;
    default:
      break;
  }
  throw InvalidArgument(
      fmt::format("tensors of type {} are not supported; supported are uint8, int32, int64, bfloat16, "
                  "float32, float64",
                  c10::toString(type)));
}

void seed_default_generator(std::uint64_t seed) {
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

void translate_torch_errors(std::string const& doing, std::function<void()> const& work) {
  try {
    work();
  } catch (c10::OutOfMemoryError const& error) {
    throw DeviceError(fmt::format("{}: {}", doing, without_trace(error)));
  } catch (c10::Error const& error) {
    throw Error(ErrorKind::failed, fmt::format("{}: {}", doing, without_trace(error)));
  }
}

}  // namespace ballast
