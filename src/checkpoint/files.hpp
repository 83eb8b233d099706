// SPDX-License-Identifier: Apache-2.0
/// What checkpoints ask of the file system, with every return code checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ballast::detail {

/// Size and XXH3-128 of a whole file.
struct FileDigest {
  std::int64_t bytes = 0;
  std::string hash;  ///< 32 hexadecimal digits
  friend bool operator==(FileDigest const&, FileDigest const&) = default;
};

/// Reads the file in tiles that stay in the cache. @throws IoError.
FileDigest digest_file(std::filesystem::path const& path);

/// Creates the directory and its missing parents with mode 0700, whatever the umask says. @throws IoError.
void create_private_directories(std::filesystem::path const& path);

/// @throws IoError.
void rename_file(std::filesystem::path const& from, std::filesystem::path const& to);

/// Removes a file if it is there. @throws IoError.
void remove_file(std::filesystem::path const& path);

}  // namespace ballast::detail
