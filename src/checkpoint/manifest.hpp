// SPDX-License-Identifier: Apache-2.0
/// The manifest of a step: which file holds which interval of which tensor. JSON "ballast.checkpoint/1".
#pragma once

#include "ballast/checkpoint/checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::detail {

inline constexpr char const* kManifestName = "manifest.json";

/// An interval of a tensor as one dataset of a file.
struct StoredShard {
  std::string tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string dataset;
  friend bool operator==(StoredShard const&, StoredShard const&) = default;
};

struct StoredFile {
  std::string name;  ///< inside the step directory
  std::int64_t bytes = 0;
  std::string hash;  ///< XXH3-128 of the whole file, 32 hexadecimal digits
  std::vector<StoredShard> shards;
  friend bool operator==(StoredFile const&, StoredFile const&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  std::vector<CheckpointTensor> tensors;  ///< by name
  std::vector<StoredFile> files;
  std::string metadata = "{}";  ///< a JSON object
  friend bool operator==(Manifest const&, Manifest const&) = default;

  /// Returns the tensor, or null.
  CheckpointTensor const* find(std::string_view name) const;
};

/// Returns the number of elements; nothing if a dimension is negative or the tensor would exceed 2^63 bytes.
std::optional<std::int64_t> num_elements(std::vector<std::int64_t> const& shape, DataType type);

/// Returns why a tensor cannot have this name, empty if it can: parts between "/" are not empty, "." or "..", do not
/// look like a dataset ("3-9"), and the whole is UTF-8 without control characters, at most 1000 bytes.
std::string name_fault(std::string_view name);

/// Returns the dataset of an interval, "/" name "/" begin "-" end.
std::string dataset_path(std::string_view name, std::int64_t begin, std::int64_t end);

std::string to_json(Manifest const& manifest);
/// Refuses everything that no save writes: unknown keys, names that leave the directory, shards of unknown tensors or
/// outside of them. @throws DataError.
Manifest manifest_from_json(std::string_view text, std::string const& source);

/// Returns the text of the manifest in a step directory. @throws DataError if there is none or it is absurdly large.
std::string read_manifest_text(std::filesystem::path const& step_directory);

/// Returns the manifest with the text read from a step directory, checked also against the directory's name.
/// @throws DataError.
Manifest checked_manifest(std::string const& text, std::filesystem::path const& step_directory);

/// Throws DataError if JSON text is nested so deep that handling it could exhaust the stack.
void check_depth(std::string_view text, std::string const& source);

}  // namespace ballast::detail
