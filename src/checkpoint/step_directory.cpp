// SPDX-License-Identifier: Apache-2.0
#include "step_directory.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "files.hpp"
#include "manifest.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kRankPrefix = "rank-";
constexpr std::size_t kStepDigits = 8;

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

/// The generation of a rank's file, also of one that is still being written; nothing for other files.
std::optional<int> generation_of(std::string_view name) {
  if (!name.starts_with(kRankPrefix)) return {};
  name.remove_prefix(kRankPrefix.size());
  for (std::string_view const suffix : {".tmp", ".h5"}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  auto const dot = name.find('.');
  if (dot == name.npos) return whole_number<int>(name) ? std::optional(0) : std::nullopt;
  return whole_number<int>(name.substr(dot + 1));
}

std::vector<fs::path> entries(fs::path const& directory) {
  try {
    return {fs::directory_iterator(directory), fs::directory_iterator()};
  } catch (fs::filesystem_error const& error) {
    throw IoError(fmt::format("cannot list {}: {}", directory.string(), error.code().message()));
  }
}

void remove_tree(fs::path const& directory) {
  std::error_code error;
  fs::remove_all(directory, error);  // does not follow links
  if (error) throw IoError(fmt::format("cannot remove {}: {}", directory.string(), error.message()));
}

bool is_complete(fs::path const& step_directory) {
  std::error_code error;
  return fs::exists(step_directory / kManifestName, error);
}

bool has_readable_manifest(fs::path const& step_directory) {
  try {
    checked_manifest(read_manifest_text(step_directory), step_directory);
    return true;
  } catch (DataError const&) {
    return false;
  }
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:0{}}", kStepPrefix, step, kStepDigits); }

std::optional<std::int64_t> step_of(fs::path const& step_directory) {
  auto const path = step_directory.has_filename() ? step_directory : step_directory.parent_path();
  auto const name = path.filename().string();
  if (!name.starts_with(kStepPrefix) || name.size() < kStepPrefix.size() + kStepDigits) return {};
  return whole_number<std::int64_t>(std::string_view(name).substr(kStepPrefix.size()));
}

std::string rank_file_name(int rank, int generation) {
  if (generation == 0) return fmt::format("{}{:04}.h5", kRankPrefix, rank);
  return fmt::format("{}{:04}.{}.h5", kRankPrefix, rank, generation);
}

std::vector<StepDirectory> list_steps(fs::path const& directory) {
  std::error_code error;
  if (!fs::exists(directory, error) && (!error || error == std::errc::not_a_directory)) return {};
  std::vector<StepDirectory> steps;
  for (auto const& path : entries(directory)) {
    auto const step = step_of(path);
    if (step && fs::is_directory(path, error)) steps.push_back({path, *step, is_complete(path)});
  }
  std::sort(steps.begin(), steps.end(), [](auto const& a, auto const& b) { return a.step > b.step; });
  return steps;
}

int prepare_step(fs::path const& directory, std::int64_t step) {
  auto const path = directory / step_name(step);
  create_private_directories(directory);
  std::error_code error;
  int generation = 0;
  if (is_complete(path)) {
    for (auto const& entry : entries(path)) {
      if (auto const found = generation_of(entry.filename().string())) generation = std::max(generation, *found + 1);
    }
    return generation;
  }
  if (fs::is_directory(path, error)) remove_tree(path);
  create_private_directories(path);
  sync_directory(directory);
  return generation;
}

void discard_step(fs::path const& step_directory, int generation) {
  if (!is_complete(step_directory)) {
    remove_tree(step_directory);
    return;
  }
  for (auto const& entry : entries(step_directory)) {
    if (generation_of(entry.filename().string()) == generation) remove_file(entry);
  }
}

void remove_other_files(fs::path const& step_directory, std::set<std::string> const& keep) {
  for (auto const& entry : entries(step_directory)) {
    auto const name = entry.filename().string();
    if (generation_of(name) && !keep.contains(name)) remove_file(entry);
  }
}

void remove_step(fs::path const& step_directory) {
  remove_file(step_directory / kManifestName);
  sync_directory(step_directory);
  remove_tree(step_directory);
}

void prune_steps(fs::path const& directory, std::int64_t step, int keep) {
  int kept = 1;
  for (auto const& candidate : list_steps(directory)) {
    if (candidate.step == step) continue;
    if (!candidate.complete) {
      remove_step(candidate.path);
    } else if (keep > 0 && candidate.step < step) {
      if (kept >= keep) {
        remove_step(candidate.path);
      } else if (has_readable_manifest(candidate.path)) {
        ++kept;
      }
    }
  }
}

}  // namespace ballast::detail
