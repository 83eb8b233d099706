// SPDX-License-Identifier: Apache-2.0
// Saving a step. The order is the promise: no file has its name before it is on disk, no manifest before all files, and
// nothing old goes before the new manifest is on disk.
#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/json.hpp"
#include "ballast/base/log.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/comm/collective.hpp"
#include "files.hpp"
#include "hdf5.hpp"
#include "layout.hpp"
#include "manifest.hpp"
#include "step_directory.hpp"

#include <exception>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

using namespace detail;
namespace fs = std::filesystem;

void check_metadata(std::string const& metadata) {
  try {
    check_depth(metadata, "metadata");
    if (!parse_json(metadata, "metadata").is_object()) throw DataError("metadata: expected a JSON object");
  } catch (DataError const& error) {
    throw InvalidArgument(error.what());
  }
}

/// Writes this rank's file under its final name and returns what the manifest says of it.
StoredFile write_rank_file(fs::path const& step_directory, std::string const& name,
                           std::vector<TensorShard> const& shards, std::vector<StoredShard> const& mine) {
  auto const path = step_directory / name;
  auto temporary = path;
  temporary += ".tmp";
  std::set<std::tuple<std::string, std::int64_t>> to_write;
  for (auto const& shard : mine) to_write.insert({shard.tensor, shard.begin});

  OutputFile output(temporary);
  Hdf5Writer writer(output);
  for (auto const& shard : shards) {
    if (shard.begin == shard.end || !to_write.contains({shard.name, shard.begin})) continue;
    writer.write({dataset_path(shard.name, shard.begin, shard.end), shard.shape, shard.type, shard.begin, shard.end},
                 shard.data);
  }
  writer.close();
  output.commit();
  // Hashed by reading the file back, while the system still has it in memory: it costs one pass, and it covers what HDF5
  // wrote around the data, too.
  auto digest = digest_file(temporary);
  rename_file(temporary, path);
  sync_directory(step_directory);
  return {name, digest.bytes, std::move(digest.hash), mine};
}

/// What ranks tell each other of their files; the shards are known to all.
std::string describe(StoredFile const& file) {
  return file.name.empty() ? std::string() : nlohmann::json({file.name, file.bytes, file.hash}).dump();
}

Manifest make_manifest(std::int64_t step, SaveLayout const& layout, std::vector<std::string> const& files,
                       std::string const& metadata) {
  Manifest manifest{step, layout.tensors, {}, metadata};
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    if (files[rank].empty()) continue;
    auto const json = nlohmann::json::parse(files[rank]);
    manifest.files.push_back({json[0], json[1], json[2], layout.shards[rank]});
  }
  return manifest;
}

/// After the commit: what fails here leaves a good checkpoint, so it is only told.
void tidy(fs::path const& directory, fs::path const& step_directory, Manifest const& manifest,
          SaveOptions const& options) {
  try {
    std::set<std::string> files;
    for (auto const& file : manifest.files) files.insert(file.name);
    remove_other_files(step_directory, files);
    write_file_atomically(directory / "latest", step_directory.filename().string() + "\n");
    prune_steps(directory, manifest.step, options.keep);
  } catch (std::exception const& error) {
    log(LogLevel::warning,
        fmt::format("{} is saved, but tidying up failed: {}", step_directory.string(), error.what()));
  }
}

/// Removes the traces of a failed save, on rank 0. When writing the manifest failed after it took its place, the step is
/// whole and stays.
void discard(fs::path const& step_directory, int generation, std::string const& manifest_text) {
  try {
    std::error_code error;
    if (!manifest_text.empty() && fs::exists(step_directory / kManifestName, error) &&
        read_manifest_text(step_directory) == manifest_text) {
      return;
    }
    discard_step(step_directory, generation);
  } catch (std::exception const& error) {
    log(LogLevel::warning, fmt::format("an unfinished checkpoint stays behind: {}", error.what()));
  }
}

bool others_failed(Communicator& comm) {
  try {
    comm.check_failure();
    return false;
  } catch (std::exception const&) {
    return true;
  }
}

}  // namespace

fs::path save_checkpoint(Communicator& comm, fs::path const& directory, std::int64_t step,
                         std::vector<TensorShard> const& shards, std::string const& metadata,
                         SaveOptions const& options) {
  std::string description;
  collectively(comm, [&] {
    if (options.keep < 0) throw InvalidArgument(fmt::format("keep: expected an integer >= 0, found {}", options.keep));
    check_metadata(metadata);
    description = describe_shards(step, shards);
  });
  auto const descriptions = all_gather_text(comm, description);
  SaveLayout layout;
  int generation = 0;
  collectively(comm, [&] {
    layout = make_layout(descriptions);
    if (comm.rank() == 0) generation = prepare_step(directory, step);
  });
  generation = static_cast<int>(all_reduce_value(comm, std::int64_t{generation}, ReduceOperation::max));

  auto const step_directory = directory / step_name(step);
  std::string manifest_text;
  Manifest manifest;
  try {
    StoredFile file;
    collectively(comm, [&] {
      auto const& mine = layout.shards[static_cast<std::size_t>(comm.rank())];
      if (!mine.empty()) file = write_rank_file(step_directory, rank_file_name(comm.rank(), generation), shards, mine);
    });
    auto const files = all_gather_text(comm, describe(file));
    collectively(comm, [&] {
      if (comm.rank() != 0) return;
      manifest = make_manifest(step, layout, files, metadata);
      manifest_text = to_json(manifest);
      write_file_atomically(step_directory / kManifestName, manifest_text);
    });
  } catch (...) {
    // If the job as a whole failed, others may still be writing: the step stays without manifest, which is no step.
    if (!others_failed(comm)) {
      if (comm.rank() == 0) discard(step_directory, generation, manifest_text);
      comm.barrier();  // nobody tries again before rank 0 has cleared the place
    }
    throw;
  }
  if (comm.rank() == 0) tidy(directory, step_directory, manifest, options);
  comm.barrier();  // for rank 0's tidying: whoever returns sees the folder as it stays
  return step_directory;
}

}  // namespace ballast
