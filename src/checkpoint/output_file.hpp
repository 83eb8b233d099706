// SPDX-License-Identifier: Apache-2.0
/// A file being written, which remembers its first failure instead of reporting it to whoever writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace ballast::detail {

/// The file under an HDF5 file. HDF5 does not survive a failed write: it cannot close the file any more, keeps a broken
/// identifier of it, and crashes on that when the process ends (seen with 1.10.8). So a failure is only noted here, HDF5
/// goes on as if all were well and cleans up, and `check` throws afterwards. Nothing more is written after a failure.
class OutputFile {
 public:
  /// Creates the file with mode 0600, whatever the umask says; one left by a crash is emptied. @throws IoError.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(OutputFile const&) = delete;
  OutputFile& operator=(OutputFile const&) = delete;

  std::filesystem::path const& path() const noexcept { return path_; }
  /// Bytes, as if nothing had failed.
  std::int64_t size() const noexcept { return size_; }

  void write(std::int64_t offset, void const* data, std::size_t bytes) noexcept;
  /// What was never written reads as zeros.
  void read(std::int64_t offset, void* data, std::size_t bytes) noexcept;
  void resize(std::int64_t bytes) noexcept;

  /// @throws IoError with the system's reason if anything failed so far.
  void check() const;
  /// Flushes to disk and closes. @throws IoError if anything failed, here or before.
  void commit();

 private:
  void note_failure(char const* what) noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  char const* failed_to_ = nullptr;  ///< what failed first
  int error_number_ = 0;
};

}  // namespace ballast::detail
