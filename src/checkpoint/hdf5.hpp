// SPDX-License-Identifier: Apache-2.0
/// The little of HDF5 that checkpoints need: owned handles, checked calls, one file written or read by one rank.
#pragma once

#include "ballast/comm/data_type.hpp"
#include "output_file.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <hdf5.h>

namespace ballast::detail {

/// Owns an HDF5 identifier and knows how to close it.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Closer closer) noexcept : id_(id), closer_(closer) {}
  ~Hdf5Handle() { release(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(std::exchange(other.closer_, nullptr)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      release();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      closer_ = std::exchange(other.closer_, nullptr);
    }
    return *this;
  }
  Hdf5Handle(Hdf5Handle const&) = delete;
  Hdf5Handle& operator=(Hdf5Handle const&) = delete;

  hid_t id() const noexcept { return id_; }
  bool valid() const noexcept { return id_ >= 0; }
  /// Closes now and returns HDF5's result, for what must not fail in silence.
  herr_t close() noexcept {
    auto const id = std::exchange(id_, H5I_INVALID_HID);
    return id >= 0 ? closer_(id) : 0;
  }

 private:
  void release() noexcept {
    if (id_ >= 0) closer_(id_);
  }

  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

/// An interval of a tensor as one dataset.
struct Hdf5Shard {
  std::string dataset;              ///< absolute path; missing groups are created
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  DataType type = DataType::float32;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Writes one file. Without `close` it is not complete.
class Hdf5Writer {
 public:
  /// Writes to `file`, which must outlive it. @throws IoError with HDF5's own text.
  explicit Hdf5Writer(OutputFile& file);

  /// Writes end - begin elements. @throws IoError.
  void write(Hdf5Shard const& shard, void const* data);
  /// Completes the file's content; the file itself stays open. @throws IoError.
  void close();

 private:
  OutputFile& output_;
  Hdf5Handle driver_;
  Hdf5Handle file_;
};

/// Reads from one file, whose content must be known to be whole: HDF5's parser crashes on damaged files.
class Hdf5Reader {
 public:
  /// @throws DataError if HDF5 refuses the file.
  explicit Hdf5Reader(std::filesystem::path path);

  /// Reads `count` elements from element `offset` of a one-dimensional dataset of `size` elements of `type`.
  /// @throws DataError if the dataset is missing or of another kind, IoError if it cannot be read.
  void read(std::string const& dataset, DataType type, std::int64_t size, std::int64_t offset, std::int64_t count,
            void* data) const;
  /// Checks that the dataset is there and of that type and size. @throws DataError.
  void check(std::string const& dataset, DataType type, std::int64_t size) const;

 private:
  Hdf5Handle open(std::string const& dataset, DataType type, std::int64_t size) const;

  std::filesystem::path path_;
  Hdf5Handle file_;
};

}  // namespace ballast::detail
