// SPDX-License-Identifier: Apache-2.0
/// Sharded checkpoints: one HDF5 file per rank, a manifest that is the truth, a commit that survives anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/communicator.hpp"
#include "ballast/comm/data_type.hpp"

namespace ballast {

/// Elements [begin, end) of a tensor in row-major order, held by this rank.
///
/// Example: of a (4, 3) tensor, {"block0.weight", {4, 3}, float32, 3, 9, data} is its second and third row.
struct TensorShard {
  std::string name;                     ///< logical, the same under every plan; UTF-8, at most 1000 bytes; "/" separates
                                        ///< groups, whose names are not empty, ".", ".." or like an interval ("3-9")
  std::vector<std::int64_t> shape;      ///< of the whole tensor; empty: a scalar
  DataType type = DataType::float32;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  void* data = nullptr;                 ///< end - begin elements; read by save, written by load
};

struct SaveOptions {
  int keep = 3;                         ///< complete steps left after pruning, this one included; 0 keeps all
};

/// Writes the step directory `directory/step-NNNNNNNN` and commits it: every rank writes `rank-RRRR.h5.tmp`, checks every
/// return, closes, fsyncs, renames, fsyncs the directory; ranks agree; rank 0 writes `manifest.json` the same way, moves
/// `latest`, prunes. `metadata` is a JSON object text kept in the manifest (step, seeds, data position, config, plan); rank
/// 0's counts. Shards of one tensor must not overlap and must cover it over all ranks; tensors may be replicated exactly
/// (the same interval on several ranks: the lowest rank writes). A rank without shards of its own writes no file.
///
/// A complete step of the same number is replaced at once: new files of the next generation (`rank-RRRR.1.h5`) are written
/// beside the old ones, and the new manifest takes the old one's place. An incomplete one is removed first. Pruning removes
/// all other incomplete steps, but never complete ones with a higher number (left over when training went back).
/// Returns the step directory. Collective over `comm`.
/// @throws InvalidArgument on all ranks if the shards or the metadata are not as said, IoError on all ranks naming rank,
/// path and errno text; what was committed before stays complete, and of this step nothing is left.
std::filesystem::path save_checkpoint(Communicator& comm, std::filesystem::path const& directory, std::int64_t step,
                                      std::vector<TensorShard> const& shards, std::string const& metadata,
                                      SaveOptions const& options = {});

/// One tensor of a checkpoint.
struct CheckpointTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DataType type = DataType::float32;
  friend bool operator==(CheckpointTensor const&, CheckpointTensor const&) = default;
};

/// What the manifest of a committed step says.
struct CheckpointInfo {
  std::filesystem::path step_directory;
  std::int64_t step = 0;
  int num_files = 0;
  std::int64_t num_bytes = 0;           ///< of all files
  std::vector<CheckpointTensor> tensors;  ///< by name
  std::string metadata;                 ///< the JSON object given to save, as compact text
};

/// Returns the newest committed step below `directory` (by manifests; `latest` is a hint only), or nothing.
/// `directory` may also be a step directory itself. Local. @throws IoError, DataError for a damaged manifest only when
/// no earlier complete step exists (else logs a warning and falls back).
std::optional<CheckpointInfo> find_checkpoint(std::filesystem::path const& directory);

/// Returns the step directories below `directory` that have a manifest, which may be damaged, newest first; `directory`
/// alone if it is such a step itself; nothing if it is no directory. Local. @throws IoError.
std::vector<std::filesystem::path> committed_steps(std::filesystem::path const& directory);

/// Reads the manifest of one step directory. Local. @throws DataError naming the file and what is wrong.
CheckpointInfo read_manifest(std::filesystem::path const& step_directory);
/// As above, but rank 0 reads for all. Collective over `comm`. @throws DataError, IoError on all ranks.
CheckpointInfo read_manifest(Communicator& comm, std::filesystem::path const& step_directory);

/// Fills every shard's data from the step: the intervals are cut out of whatever files hold them, hashes of the files are
/// checked before HDF5 opens them. Any number of ranks. Collective over `comm`.
/// @throws on all ranks DataError (a file missing or changed, an interval that no file holds), InvalidArgument if the step
/// has no such tensor or one of another shape or type (it is of another model), IoError.
void load_checkpoint(Communicator& comm, CheckpointInfo const& checkpoint, std::vector<TensorShard> const& shards);

/// Checks all hashes and that every tensor is covered exactly once; returns each fault as a line. Local.
std::vector<std::string> verify_checkpoint(CheckpointInfo const& checkpoint);

}  // namespace ballast
