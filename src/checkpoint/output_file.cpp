// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ballast::detail {

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NOFOLLOW: a link left in a shared folder must not lead the write elsewhere.
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor_ == -1) note_failure("create");
  if (failed_to_ == nullptr && ::fchmod(descriptor_, 0600) == -1) note_failure("set the mode of");
  if (failed_to_ == nullptr) return;
  if (descriptor_ != -1) ::close(descriptor_);
  check();
}

OutputFile::~OutputFile() {
  if (descriptor_ != -1) ::close(descriptor_);
}

void OutputFile::write(std::int64_t offset, void const* data, std::size_t bytes) noexcept {
  size_ = std::max(size_, offset + static_cast<std::int64_t>(bytes));
  auto const* next = static_cast<char const*>(data);
  while (bytes > 0 && failed_to_ == nullptr) {
    auto const written = ::pwrite(descriptor_, next, bytes, offset);
    if (written == -1 && errno == EINTR) continue;
    if (written == -1) return note_failure("write");
    next += written;
    offset += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::read(std::int64_t offset, void* data, std::size_t bytes) noexcept {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    auto const count = ::pread(descriptor_, next, bytes, offset);
    if (count == -1 && errno == EINTR) continue;
    if (count == -1) note_failure("read back");
    if (count <= 0) break;
    next += count;
    offset += count;
    bytes -= static_cast<std::size_t>(count);
  }
  std::memset(next, 0, bytes);
}

void OutputFile::resize(std::int64_t bytes) noexcept {
  size_ = bytes;
  if (failed_to_ == nullptr && ::ftruncate(descriptor_, bytes) == -1) note_failure("write");
}

void OutputFile::check() const {
  if (failed_to_ == nullptr) return;
  throw IoError(
      fmt::format("cannot {} {}: {}", failed_to_, path_.string(), std::generic_category().message(error_number_)));
}

void OutputFile::commit() {
  check();
  if (::fsync(descriptor_) == -1) note_failure("flush");
  // Some file systems report a failed write only here.
  if (::close(std::exchange(descriptor_, -1)) == -1) note_failure("close");
  check();
}

void OutputFile::note_failure(char const* what) noexcept {
  if (failed_to_ != nullptr) return;
  failed_to_ = what;
  error_number_ = errno;
}

}  // namespace ballast::detail
