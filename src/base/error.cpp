// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"

#include <new>
#include <string_view>

namespace ballast {
namespace {

/// LibTorch appends a stack trace to every message, from a line that starts with these words.
constexpr std::string_view kTraceStart = "Exception raised from";

std::string without_trace(std::string_view text) {
  for (auto at = text.find(kTraceStart); at != text.npos; at = text.find(kTraceStart, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') {
      text = text.substr(0, at);
      break;
    }
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

void throw_error(ErrorKind kind, std::string const& message) {
  switch (kind) {
    case ErrorKind::failed:
      break;
    case ErrorKind::invalid_argument:
      throw InvalidArgument(message);
    case ErrorKind::infeasible_plan:
      throw InfeasiblePlan(message);
    case ErrorKind::communication:
      throw CommunicationError(message);
    case ErrorKind::device:
      throw DeviceError(message);
    case ErrorKind::io:
      throw IoError(message);
    case ErrorKind::data:
      throw DataError(message);
    case ErrorKind::not_compiled:
      throw NotCompiled(message);
  }
  throw Error(ErrorKind::failed, message);
}

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return 2;
    case ErrorKind::infeasible_plan:
      return 3;
    case ErrorKind::data:
      return 65;
    default:
      return 1;
  }
}

ErrorKind kind_of(std::exception_ptr const& error) noexcept {
  if (!error) return ErrorKind::failed;
  try {
    std::rethrow_exception(error);
  } catch (Error const& caught) {
    return caught.kind();
  } catch (...) {
    return ErrorKind::failed;
  }
}

std::string message_of(std::exception_ptr const& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (std::bad_alloc const&) {
    return "out of host memory";
  } catch (std::exception const& caught) {
    return without_trace(caught.what());
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace ballast
