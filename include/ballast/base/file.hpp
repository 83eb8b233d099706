// SPDX-License-Identifier: Apache-2.0
/// Whole small files, read and written with every return code checked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ballast {

/// Returns the whole file. @throws InvalidArgument if it does not exist, IoError naming path and errno text otherwise.
std::string read_file(std::filesystem::path const& path);

/// Replaces `path` so that after a crash it holds the old or the new content, never a mixture: writes `path.tmp`,
/// fsyncs, renames, fsyncs the directory. Mode 0600. @throws IoError.
void write_file_atomically(std::filesystem::path const& path, std::string_view content);

/// Flushes a directory entry to disk. @throws IoError.
void sync_directory(std::filesystem::path const& directory);

}  // namespace ballast
