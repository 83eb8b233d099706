// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/file.hpp"

#include "ballast/base/error.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for every test, removed with all that is in it.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    auto pattern = (fs::temp_directory_path() / "ballast_file_test.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }

  /// Read with other code than wrote.
  static std::string content_of(fs::path const& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path folder_;
};

TEST_F(FileTest, IsReadWhole) {
  std::string const content = std::string("line\n\0after zero", 16) + std::string(200000, 'x');
  std::ofstream(folder_ / "a", std::ios::binary) << content;

  EXPECT_EQ(read_file(folder_ / "a"), content);
}

TEST_F(FileTest, ThatIsMissingIsTheUsersMistake) {
  try {
    read_file(folder_ / "missing.toml");
    FAIL() << "nothing was thrown";
  } catch (InvalidArgument const& error) {
    EXPECT_EQ(error.what(), "there is no file " + (folder_ / "missing.toml").string());
  }
}

TEST_F(FileTest, ThatIsAFolderCannotBeRead) {
  try {
    read_file(folder_);
    FAIL() << "nothing was thrown";
  } catch (IoError const& error) {
    EXPECT_EQ(error.what(), "cannot read " + folder_.string() + ": Is a directory");
  }
}

TEST_F(FileTest, IsReplacedWholeAndLeavesNothingBeside) {
  write_file_atomically(folder_ / "a.json", "a long first content");
  write_file_atomically(folder_ / "a.json", std::string("b\0c", 3));

  EXPECT_EQ(content_of(folder_ / "a.json"), std::string("b\0c", 3));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, IsReadableByItsOwnerOnly) {
  std::ofstream(folder_ / "a.tmp") << "left by a crash, readable by all";
  fs::permissions(folder_ / "a.tmp", fs::perms::all);

  write_file_atomically(folder_ / "a", "secret");

  struct stat status {};
  ASSERT_EQ(stat((folder_ / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FileTest, IsNotWrittenThroughALinkInPlaceOfTheTemporary) {
  std::ofstream(folder_ / "victim") << "untouched";
  fs::create_symlink(folder_ / "victim", folder_ / "a.tmp");

  EXPECT_THROW(write_file_atomically(folder_ / "a", "text"), IoError);

  EXPECT_EQ(content_of(folder_ / "victim"), "untouched");
}

TEST_F(FileTest, StaysAsItWasWhenTheNewOneCannotBeWritten) {
  std::ofstream(folder_ / "a") << "old";
  fs::create_directory(folder_ / "a.tmp");

  EXPECT_THROW(write_file_atomically(folder_ / "a", "new"), IoError);

  EXPECT_EQ(content_of(folder_ / "a"), "old");
}

TEST_F(FileTest, InAFolderThatDoesNotExistIsAnErrorWithTheReason) {
  try {
    write_file_atomically(folder_ / "missing" / "a", "text");
    FAIL() << "nothing was thrown";
  } catch (IoError const& error) {
    EXPECT_EQ(error.what(),
              "cannot create " + (folder_ / "missing" / "a.tmp").string() + ": No such file or directory");
  }
}

TEST_F(FileTest, ThatMeetsAFullDiskStaysAsItWas) {
  std::ofstream(folder_ / "a") << "old";
  // A limit on the size of files stands in for the full disk: write returns an error in the middle.
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit const small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);

  EXPECT_THROW(write_file_atomically(folder_ / "a", std::string(100000, 'x')), IoError);

  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(content_of(folder_ / "a"), "old");
  EXPECT_FALSE(fs::exists(folder_ / "a.tmp"));
}

TEST_F(FileTest, MayBeNamedWithoutAFolder) {
  auto const before = fs::current_path();
  fs::current_path(folder_);

  write_file_atomically("plain", "text");

  fs::current_path(before);
  EXPECT_EQ(content_of(folder_ / "plain"), "text");
}

TEST_F(FileTest, SyncOfAMissingFolderIsAnError) {
  EXPECT_NO_THROW(sync_directory(folder_));
  EXPECT_THROW(sync_directory(folder_ / "missing"), IoError);
}

}  // namespace
}  // namespace ballast
