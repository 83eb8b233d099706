// SPDX-License-Identifier: Apache-2.0
/// The directories of a checkpoint folder: names, which are complete, and how they come and go.
///
/// A step is complete exactly when its directory holds manifest.json. Saving a complete step again writes files of the
/// next generation beside the old ones; the new manifest replaces the old one at once, so one of them is always whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ballast::detail {

struct StepDirectory {
  std::filesystem::path path;
  std::int64_t step = 0;
  bool complete = false;  ///< has a manifest (which may be damaged)
};

/// "step-00000100".
std::string step_name(std::int64_t step);
/// Returns the step of a directory named by `step_name`, or nothing.
std::optional<std::int64_t> step_of(std::filesystem::path const& step_directory);

/// "rank-0003.h5"; later generations "rank-0003.2.h5".
std::string rank_file_name(int rank, int generation);

/// Returns the step directories below `directory`, newest first; none if it does not exist. @throws IoError.
std::vector<StepDirectory> list_steps(std::filesystem::path const& directory);

/// Makes `directory` and an empty place for the step in it: an incomplete step of that number is removed, a complete one
/// kept. Returns the generation that the new files must have. @throws IoError.
int prepare_step(std::filesystem::path const& directory, std::int64_t step);

/// Removes what an unfinished save wrote: the whole step if it never was complete, else files of this generation.
/// @throws IoError.
void discard_step(std::filesystem::path const& step_directory, int generation);

/// Removes all rank files that are not in `keep`. @throws IoError.
void remove_other_files(std::filesystem::path const& step_directory, std::set<std::string> const& keep);

/// Removes a step so that it is never half there: first the manifest, then the rest. @throws IoError.
void remove_step(std::filesystem::path const& step_directory);

/// Leaves `step` and the `keep - 1` newest complete steps before it, with readable manifests; removes older ones and
/// incomplete ones. Later steps stay: they belong to another course of training. `keep` 0 removes incomplete ones only.
/// @throws IoError.
void prune_steps(std::filesystem::path const& directory, std::int64_t step, int keep);

}  // namespace ballast::detail
