// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/train/data.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ballast {
namespace {

/// A file mapped for reading: all ranks of a node share its pages.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path const& path) {
    int const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw IoError(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
    struct stat status {};
    void* data = nullptr;
    int error = ::fstat(file, &status) == 0 ? 0 : errno;
    if (error == 0 && status.st_size > 0) {
      data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      error = data == MAP_FAILED ? errno : 0;
    }
    ::close(file);  // the mapping stays
    if (error != 0) throw IoError(fmt::format("cannot read {}: {}", path.string(), std::strerror(error)));
    data_ = static_cast<unsigned char const*>(data);
    size_ = status.st_size;
  }
  ~MappedFile() {
    if (data_) ::munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(size_));
  }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;

  unsigned char const* data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }

 private:
  unsigned char const* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Text holds no byte 0; one look at the start tells indices and archives that lie beside it.
bool is_text(std::filesystem::path const& path) {
  constexpr std::int64_t looked_at = 8192;
  MappedFile const file(path);
  auto const* const end = file.data() + std::min(file.size(), looked_at);
  return std::find(file.data(), end, 0) == end;
}

std::vector<std::filesystem::path> files_of(std::vector<std::filesystem::path> const& paths) {
  std::vector<std::filesystem::path> files;
  for (auto const& path : paths) {
    std::error_code error;
    auto const status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status))
      throw InvalidArgument(fmt::format("text data: {} does not exist", path.string()));
    if (!std::filesystem::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    auto const first = std::ssize(files);
    try {
      for (auto const& entry : std::filesystem::directory_iterator(path)) {
        if (entry.is_regular_file() && !entry.is_symlink() && is_text(entry.path())) files.push_back(entry.path());
      }
    } catch (std::filesystem::filesystem_error const& failure) {
      throw IoError(fmt::format("cannot read {}: {}", path.string(), failure.code().message()));
    }
    std::sort(files.begin() + first, files.end());  // the order of a directory differs between machines
  }
  return files;
}

class TextDataset final : public Dataset {
 public:
  TextDataset(std::vector<std::filesystem::path> const& paths, std::int64_t context, TextSplit split)
      : context_(context) {
    if (context < 1) throw InvalidArgument(fmt::format("text data: context must be positive, found {}", context));
    if (!(0.0 <= split.begin && split.begin < split.end && split.end <= 1.0)) {
      throw InvalidArgument(
          fmt::format("text data: the split must lie in order within 0 and 1, found {} to {}", split.begin, split.end));
    }
    std::int64_t total = 0;
    for (auto const& path : files_of(paths)) {
      files_.emplace_back(path);
      ends_.push_back(total += files_.back().size());
    }
    begin_ = std::llround(split.begin * static_cast<double>(total));
    std::int64_t const end = std::llround(split.end * static_cast<double>(total));
    if (end - begin_ < context + 1) {
      throw InvalidArgument(
          fmt::format("text data: a context of {} needs {} bytes, the split holds {} of {} in {} files", context,
                      context + 1, end - begin_, total, files_.size()));
    }
    size_ = end - begin_ - context;
  }

  std::int64_t size() const override { return size_; }
  Batch samples(std::span<std::int64_t const> indices) const override { return {inputs(indices), targets(indices)}; }
  Tensors inputs(std::span<std::int64_t const> indices) const override { return {windows(indices, 0)}; }
  at::Tensor targets(std::span<std::int64_t const> indices) const override { return windows(indices, 1); }

 private:
  /// The `context` bytes from each index + shift, as (B, T) int64.
  at::Tensor windows(std::span<std::int64_t const> indices, std::int64_t shift) const {
    auto result = at::empty({std::ssize(indices), context_}, at::kLong);
    auto* next = result.mutable_data_ptr<std::int64_t>();
    for (auto const index : indices) next = copy(begin_ + index + shift, next);
    return result;
  }

  /// Copies `context` bytes from `position` of all files taken as one; returns where the copy ends.
  std::int64_t* copy(std::int64_t position, std::int64_t* to) const {
    auto file = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin());
    for (std::int64_t left = context_; left > 0; ++file) {
      std::int64_t const in_file = position - (ends_[file] - files_[file].size());
      std::int64_t const count = std::min(left, files_[file].size() - in_file);
      to = std::copy_n(files_[file].data() + in_file, count, to);
      position += count;
      left -= count;
    }
    return to;
  }

  std::vector<MappedFile> files_;
  std::vector<std::int64_t> ends_;  // of each file, in bytes from the start of the first
  std::int64_t context_;
  std::int64_t begin_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> make_text_dataset(std::vector<std::filesystem::path> const& paths, std::int64_t context,
                                           TextSplit split) {
  return std::make_unique<TextDataset>(paths, context, split);
}

}  // namespace ballast
