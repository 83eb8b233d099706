// SPDX-License-Identifier: Apache-2.0
#include "cluster/cgroup.hpp"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace ballast::detail {
namespace {

namespace fs = std::filesystem;

/// A folder that looks like /sys/fs/cgroup, and a file like /proc/self/cgroup.
class FakeCgroups : public testing::Test {
 protected:
  void SetUp() override {
    auto name = (fs::temp_directory_path() / "ballast-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(fs::path const& relative, std::string const& content) const {
    fs::create_directories((root_ / relative).parent_path());
    std::ofstream(root_ / relative) << content;
  }
  CgroupLimits limits() const { return read_cgroup_limits(root_ / "membership", root_ / "mount"); }

  fs::path root_;
};

TEST_F(FakeCgroups, VersionTwoTakesTheTightestOfAllParents) {
  write("membership", "0::/job/step\n");
  write("mount/job/step/cpu.max", "300000 100000\n");
  write("mount/job/cpu.max", "150000 100000\n");
  write("mount/cpu.max", "max 100000\n");
  write("mount/job/step/memory.max", "max\n");
  write("mount/job/memory.max", "1073741824\n");

  EXPECT_EQ(limits(), (CgroupLimits{1.5, 1 << 30}));
}

TEST_F(FakeCgroups, VersionOneReadsItsOwnFiles) {
  write("membership", "4:memory:/box\n3:cpuset:/\n2:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n");
  write("mount/cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
  write("mount/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  write("mount/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("mount/memory/box/memory.limit_in_bytes", "2000000\n");
  write("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");

  EXPECT_EQ(limits(), (CgroupLimits{0.5, 2000000}));
}

TEST_F(FakeCgroups, AGroupOfTheHostThatIsNotMountedFallsBackToTheRoot) {
  write("membership", "0::/docker/0123456789\n");
  write("mount/cpu.max", "200000 100000\n");
  write("mount/memory.max", "4096\n");

  EXPECT_EQ(limits(), (CgroupLimits{2.0, 4096}));
}

TEST_F(FakeCgroups, NoLimitsAreNoLimits) {
  EXPECT_EQ(limits(), CgroupLimits{}) << "nothing is there at all";

  write("membership", "nonsense\n::\n7:cpu:\n0::/\n");
  write("mount/cpu.max", "max\n");
  write("mount/memory.max", "\n");
  write("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");

  EXPECT_EQ(limits(), CgroupLimits{});
}

}  // namespace
}  // namespace ballast::detail
