// SPDX-License-Identifier: Apache-2.0
// Finding, reading and checking steps.
#include "ballast/base/error.hpp"
#include "ballast/base/log.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/comm/collective.hpp"
#include "files.hpp"
#include "hdf5.hpp"
#include "layout.hpp"
#include "manifest.hpp"
#include "step_directory.hpp"

#include <exception>

#include <fmt/format.h>

namespace ballast {
namespace {

using namespace detail;
namespace fs = std::filesystem;

CheckpointInfo info_of(fs::path const& step_directory, Manifest manifest) {
  CheckpointInfo info;
  info.step_directory = step_directory;
  info.step = manifest.step;
  info.num_files = static_cast<int>(manifest.files.size());
  for (auto const& file : manifest.files) info.num_bytes += file.bytes;
  info.tensors = std::move(manifest.tensors);
  info.metadata = std::move(manifest.metadata);
  return info;
}

/// One rank reads the manifest for all: thousands of ranks opening one small file is what shared file systems hate.
Manifest shared_manifest(Communicator& comm, fs::path const& step_directory) {
  std::string text;
  collectively(comm, [&] {
    if (comm.rank() == 0) text = read_manifest_text(step_directory);
  });
  text = broadcast_text(comm, std::move(text), 0);
  Manifest manifest;
  collectively(comm, [&] { manifest = checked_manifest(text, step_directory); });
  return manifest;
}

/// Returns what is wrong with a file as a whole, empty if it is what was saved.
std::string file_fault(fs::path const& path, StoredFile const& file) {
  std::error_code error;
  if (!fs::exists(path, error)) return fmt::format("{} is missing", path.string());
  auto const digest = digest_file(path);
  if (digest.bytes != file.bytes) {
    return fmt::format("{} has {} bytes, {} were saved", path.string(), digest.bytes, file.bytes);
  }
  if (digest.hash != file.hash) {
    return fmt::format("{} is damaged: its content has hash {}, that saved has {}", path.string(), digest.hash,
                       file.hash);
  }
  return "";
}

void read_file_parts(fs::path const& path, StoredFile const& file, std::vector<ShardRead> const& reads) {
  if (auto const fault = file_fault(path, file); !fault.empty()) throw DataError(fault);
  Hdf5Reader const reader(path);
  for (auto const& read : reads) reader.read(read.dataset, read.type, read.size, read.offset, read.count, read.data);
}

}  // namespace

std::vector<fs::path> committed_steps(fs::path const& directory) {
  std::error_code error;
  if (fs::exists(directory / kManifestName, error)) return {directory};
  if (fs::exists(directory, error) && !fs::is_directory(directory, error)) return {};
  std::vector<fs::path> paths;
  for (auto const& step : list_steps(directory)) {
    if (step.complete) paths.push_back(step.path);
  }
  return paths;
}

std::optional<CheckpointInfo> find_checkpoint(fs::path const& directory) {
  std::exception_ptr fault;
  for (auto const& path : committed_steps(directory)) {
    try {
      return read_manifest(path);
    } catch (DataError const& damaged) {
      log(LogLevel::warning, fmt::format("a damaged checkpoint is passed over: {}", damaged.what()));
      if (!fault) fault = std::current_exception();
    }
  }
  if (fault) std::rethrow_exception(fault);
  return {};
}

CheckpointInfo read_manifest(fs::path const& step_directory) {
  return info_of(step_directory, checked_manifest(read_manifest_text(step_directory), step_directory));
}

CheckpointInfo read_manifest(Communicator& comm, fs::path const& step_directory) {
  return info_of(step_directory, shared_manifest(comm, step_directory));
}

void load_checkpoint(Communicator& comm, CheckpointInfo const& checkpoint, std::vector<TensorShard> const& shards) {
  auto const manifest = shared_manifest(comm, checkpoint.step_directory);
  collectively(comm, [&] {
    auto const reads = plan_reads(manifest, shards);
    for (std::size_t file = 0; file < reads.size(); ++file) {
      if (reads[file].empty()) continue;
      comm.check_failure();  // hashing a large file takes long
      read_file_parts(checkpoint.step_directory / manifest.files[file].name, manifest.files[file], reads[file]);
    }
  });
}

std::vector<std::string> verify_checkpoint(CheckpointInfo const& checkpoint) {
  Manifest manifest;
  try {
    manifest = checked_manifest(read_manifest_text(checkpoint.step_directory), checkpoint.step_directory);
  } catch (Error const& error) {
    return {error.what()};
  }
  auto faults = coverage_faults(manifest);
  for (auto const& file : manifest.files) {
    auto const path = checkpoint.step_directory / file.name;
    try {
      if (auto fault = file_fault(path, file); !fault.empty()) {
        faults.push_back(std::move(fault));
        continue;  // HDF5 must not see it
      }
      Hdf5Reader const reader(path);
      for (auto const& shard : file.shards) {
        try {
          reader.check(shard.dataset, manifest.find(shard.tensor)->type, shard.end - shard.begin);
        } catch (DataError const& error) {
          faults.emplace_back(error.what());
        }
      }
    } catch (Error const& error) {
      faults.emplace_back(error.what());
    }
  }
  return faults;
}

}  // namespace ballast
