// SPDX-License-Identifier: Apache-2.0
/// The errors of Ballast: one root, leaves by what the caller can do about them.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

namespace ballast {

/// What kind of failure an error is; travels between ranks, so that all of them throw the same type.
enum class ErrorKind : std::int32_t {
  failed,            ///< none of the others: a programmer's or an unknown error
  invalid_argument,  ///< usage or configuration: the user changes the input
  infeasible_plan,   ///< nothing fits: the user gives more memory or a smaller batch
  communication,     ///< a collective, a message or a peer failed
  device,            ///< out of device memory, or the device failed
  io,                ///< a file or disk operation failed
  data,              ///< a file was read but is damaged
  not_compiled,      ///< this build lacks the back end
};

/// Root of all errors. `what()` says what failed, with which values, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string const& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Bad usage or configuration; the message names file, line, key and what was expected where they exist.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(std::string const& message) : Error(ErrorKind::invalid_argument, message) {}
};

/// No plan fits. Names the tightest stage and the bytes that are missing there.
class InfeasiblePlan : public Error {
 public:
  explicit InfeasiblePlan(std::string const& message, std::int64_t missing_bytes = 0)
      : Error(ErrorKind::infeasible_plan, message), missing_bytes_(missing_bytes) {}
  std::int64_t missing_bytes() const noexcept { return missing_bytes_; }

 private:
  std::int64_t missing_bytes_;
};

class CommunicationError : public Error {
 public:
  explicit CommunicationError(std::string const& message) : Error(ErrorKind::communication, message) {}
};

/// A device failed, most often for want of memory.
class DeviceError : public Error {
 public:
  explicit DeviceError(std::string const& message) : Error(ErrorKind::device, message) {}
};

class IoError : public Error {
 public:
  explicit IoError(std::string const& message) : Error(ErrorKind::io, message) {}
};

/// A file exists and can be read, but its content is damaged or not what it claims to be.
class DataError : public Error {
 public:
  explicit DataError(std::string const& message) : Error(ErrorKind::data, message) {}
};

class NotCompiled : public Error {
 public:
  explicit NotCompiled(std::string const& message) : Error(ErrorKind::not_compiled, message) {}
};

/// Throws the leaf class that belongs to `kind`; used to raise on this rank what another rank reported.
[[noreturn]] void throw_error(ErrorKind kind, std::string const& message);

/// Returns the process exit code for `kind`: 2 bad input, 3 infeasible, 65 damaged data, else 1.
int exit_code(ErrorKind kind) noexcept;

/// Returns the kind of a caught exception (`failed` for one that is not an `Error`).
ErrorKind kind_of(std::exception_ptr const& error) noexcept;

/// Returns the message of a caught exception, without any library's stack trace.
std::string message_of(std::exception_ptr const& error);

}  // namespace ballast
