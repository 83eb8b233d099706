// SPDX-License-Identifier: Apache-2.0
/// What the control groups of Linux (version 1 and 2) allow this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ballast::detail {

struct CgroupLimits {
  std::optional<double> cpus;                ///< quota / period of the tightest group
  std::optional<std::int64_t> memory_bytes;  ///< of the tightest group
  friend bool operator==(CgroupLimits const&, CgroupLimits const&) = default;
};

/// Returns the least limits on the way from the process' groups up to the root. `membership` is /proc/self/cgroup,
/// `mount` the folder under which the hierarchies are mounted. What cannot be read limits nothing.
///
/// Example: `cpu.max` "150000 100000" in the process' group and "max 100000" above give 1.5 CPUs.
CgroupLimits read_cgroup_limits(std::filesystem::path const& membership = "/proc/self/cgroup",
                                std::filesystem::path const& mount = "/sys/fs/cgroup");

}  // namespace ballast::detail
