// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include "ballast/base/error.hpp"

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

namespace ballast::detail {
namespace {

namespace fs = std::filesystem;

#define BALLAST_CHECK_POSIX(call, what, path)                                                                        \
  do {                                                                                                               \
    if ((call) == -1) {                                                                                              \
      throw IoError(fmt::format("cannot {} {}: {}", what, (path).string(), std::generic_category().message(errno))); \
    }                                                                                                                \
  } while (false)

class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(fs::path const& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    BALLAST_CHECK_POSIX(descriptor_, "open", path);
  }
  ~ReadOnlyFile() { ::close(descriptor_); }
  ReadOnlyFile(ReadOnlyFile const&) = delete;
  ReadOnlyFile& operator=(ReadOnlyFile const&) = delete;
  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

struct FreeHashState {
  void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
};

}  // namespace

FileDigest digest_file(fs::path const& path) {
  constexpr std::size_t tile_bytes = 256 * 1024;
  ReadOnlyFile const file(path);
  std::unique_ptr<XXH3_state_t, FreeHashState> const state(XXH3_createState());
  if (!state || XXH3_128bits_reset(state.get()) != XXH_OK) throw std::bad_alloc();
  std::vector<char> tile(tile_bytes);
  FileDigest digest;
  while (true) {
    auto const count = ::read(file.descriptor(), tile.data(), tile.size());
    if (count == -1 && errno == EINTR) continue;
    BALLAST_CHECK_POSIX(count, "read", path);
    if (count == 0) break;
    XXH3_128bits_update(state.get(), tile.data(), static_cast<std::size_t>(count));
    digest.bytes += count;
  }
  auto const hash = XXH3_128bits_digest(state.get());
  digest.hash = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  return digest;
}

void create_private_directories(fs::path const& path) {
  std::error_code ignored;  // what cannot be looked at cannot be created either, and mkdir says why
  if (path.empty() || fs::is_directory(path, ignored)) return;
  create_private_directories(path.parent_path());
  bool const created = ::mkdir(path.c_str(), 0700) == 0;
  if (!created && errno == EEXIST && fs::is_directory(path, ignored))
    return;  // a path that ends with "/", or another process
  BALLAST_CHECK_POSIX(created ? 0 : -1, "create the directory", path);
  BALLAST_CHECK_POSIX(::chmod(path.c_str(), 0700), "set the mode of", path);
}

void rename_file(fs::path const& from, fs::path const& to) {
  BALLAST_CHECK_POSIX(::rename(from.c_str(), to.c_str()), "rename to", to);
}

void remove_file(fs::path const& path) {
  int const result = ::unlink(path.c_str());
  if (result == -1 && errno == ENOENT) return;
  BALLAST_CHECK_POSIX(result, "remove", path);
}

}  // namespace ballast::detail
