// SPDX-License-Identifier: Apache-2.0
#include "cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace ballast::detail {
namespace {

namespace fs = std::filesystem;

std::string first_line(fs::path const& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> number_in(std::string const& text) {
  try {
    std::size_t used = 0;
    double const value = std::stod(text, &used);
    if (used > 0 && value > 0) return value;
  } catch (std::exception const&) {
    // "max", an empty or a missing file: no limit
  }
  return {};
}

template <class T>
void tighten(std::optional<T>& limit, std::optional<double> const& found) {
  if (!found || *found >= 9.2e18) return;  // version 1 says "no limit" by the largest number of pages
  auto const value = static_cast<T>(*found);
  limit = limit ? std::min(*limit, value) : value;
}

void read_version_2(fs::path const& group, CgroupLimits& limits) {
  auto const cpu = first_line(group / "cpu.max");
  auto const blank = cpu.find(' ');
  auto const quota = number_in(cpu.substr(0, blank));
  auto const period = blank == cpu.npos ? std::nullopt : number_in(cpu.substr(blank));
  if (quota && period) tighten(limits.cpus, *quota / *period);
  tighten(limits.memory_bytes, number_in(first_line(group / "memory.max")));
}

void read_version_1_cpu(fs::path const& group, CgroupLimits& limits) {
  auto const quota = number_in(first_line(group / "cpu.cfs_quota_us"));  // -1: no limit
  auto const period = number_in(first_line(group / "cpu.cfs_period_us"));
  if (quota && period) tighten(limits.cpus, *quota / *period);
}

void read_version_1_memory(fs::path const& group, CgroupLimits& limits) {
  tighten(limits.memory_bytes, number_in(first_line(group / "memory.limit_in_bytes")));
}

/// Calls `read` for the group and all its parents. In a container the group's path may be that of the host, of which
/// only the root is mounted; the missing folders are then simply not there to read.
void walk_up(fs::path const& hierarchy, std::string const& group, void (*read)(fs::path const&, CgroupLimits&),
             CgroupLimits& limits) {
  auto relative = fs::path(group).relative_path();
  while (!relative.empty()) {
    read(hierarchy / relative, limits);
    relative = relative.parent_path();
  }
  read(hierarchy, limits);
}

bool names(std::string const& controllers, std::string const& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

}  // namespace

CgroupLimits read_cgroup_limits(fs::path const& membership, fs::path const& mount) {
  CgroupLimits limits;
  std::ifstream file(membership);
  // Lines are "number:controllers:/group"; version 2 has number 0 and no controllers.
  for (std::string line; std::getline(file, line);) {
    auto const first = line.find(':');
    auto const second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    auto const controllers = line.substr(first + 1, second - first - 1);
    auto const group = line.substr(second + 1);
    if (controllers.empty()) {
      walk_up(mount, group, read_version_2, limits);
      continue;
    }
    for (auto const& hierarchy : {mount / controllers, mount / "cpu", mount / "memory"}) {
      if (names(controllers, "cpu")) walk_up(hierarchy, group, read_version_1_cpu, limits);
      if (names(controllers, "memory")) walk_up(hierarchy, group, read_version_1_memory, limits);
    }
  }
  return limits;
}

}  // namespace ballast::detail
