// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/file.hpp"

#include "ballast/base/error.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ballast {
namespace {

[[noreturn]] void fail(char const* what, std::filesystem::path const& path, int error_number) {
  throw IoError("cannot " + std::string(what) + " " + path.string() + ": " +
                std::generic_category().message(error_number));
}

/// Throws IoError when a POSIX call returned -1.
#define BALLAST_CHECK_POSIX(call, what, path)  \
  do {                                         \
    if ((call) == -1) fail(what, path, errno); \
  } while (false)

/// Owns an open file.
class File {
 public:
  File(std::filesystem::path path, int flags, mode_t mode = 0)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (descriptor_ != -1) ::close(descriptor_);
  }
  File(File const&) = delete;
  File& operator=(File const&) = delete;

  bool is_open() const { return descriptor_ != -1; }
  int descriptor() const { return descriptor_; }

  /// Some file systems report a failed write only here.
  void close() { BALLAST_CHECK_POSIX(::close(std::exchange(descriptor_, -1)), "close", path_); }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

void write_all(File const& file, std::string_view content, std::filesystem::path const& path) {
  while (!content.empty()) {
    ssize_t const written = ::write(file.descriptor(), content.data(), content.size());
    if (written == -1 && errno == EINTR) continue;
    BALLAST_CHECK_POSIX(written, "write", path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string read_file(std::filesystem::path const& path) {
  File file(path, O_RDONLY);
  if (!file.is_open() && (errno == ENOENT || errno == ENOTDIR)) {
    throw InvalidArgument("there is no file " + path.string());
  }
  if (!file.is_open()) fail("open", path, errno);
  std::string content;
  std::string block(1 << 16, '\0');
  while (true) {
    ssize_t const count = ::read(file.descriptor(), block.data(), block.size());
    if (count == -1 && errno == EINTR) continue;
    BALLAST_CHECK_POSIX(count, "read", path);
    if (count == 0) return content;
    content.append(block, 0, static_cast<std::size_t>(count));
  }
}

void write_file_atomically(std::filesystem::path const& path, std::string_view content) {
  auto temporary = path;
  temporary += ".tmp";
  try {
    // O_NOFOLLOW: a link left in a shared folder must not lead the write elsewhere.
    File file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (!file.is_open()) fail("create", temporary, errno);
    // A file left by a crash keeps its own mode.
    BALLAST_CHECK_POSIX(::fchmod(file.descriptor(), 0600), "set the mode of", temporary);
    write_all(file, content, temporary);
    BALLAST_CHECK_POSIX(::fsync(file.descriptor()), "flush", temporary);
    file.close();
    BALLAST_CHECK_POSIX(::rename(temporary.c_str(), path.c_str()), "rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

void sync_directory(std::filesystem::path const& directory) {
  File file(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) fail("open the directory", directory, errno);
  BALLAST_CHECK_POSIX(::fsync(file.descriptor()), "flush the directory", directory);
}

}  // namespace ballast
