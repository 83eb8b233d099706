// SPDX-License-Identifier: Apache-2.0
// What checkpoints survive: damaged files, full disks.
#include "ballast/base/file.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/comm/collective.hpp"
#include "checkpoint/shared_folder.hpp"
#include "example_tensors.hpp"
#include "support/mpi_test.hpp"

#include <csignal>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::example_shards;
using test::SharedFolder;
using test::world;

/// Lets files of this process grow to `bytes` only, as a full disk would; write then fails with EFBIG.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit const limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FullDisk(FullDisk const&) = delete;
  FullDisk& operator=(FullDisk const&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit old_{};
};

void save_example(fs::path const& directory, std::int64_t step) {
  auto saved = example_shards(world().rank(), world().size(), true);
  save_checkpoint(world(), directory, step, saved.list(), "{}");
}

std::string load_example(CheckpointInfo const& checkpoint) {
  auto loaded = example_shards(world().rank(), world().size(), false);
  load_checkpoint(world(), checkpoint, loaded.list());
  return loaded.first_difference();
}

TEST(DamagedFile, IsRefusedOnAllRanksBeforeHdf5SeesIt) {
  SharedFolder const folder(world());
  save_example(folder.path(), 1);
  auto const checkpoint = find_checkpoint(folder.path()).value();
  auto const file = checkpoint.step_directory / ("rank-000" + std::to_string(world().size() - 1) + ".h5");
  auto const whole = read_file(file);
  auto const refusal = [&] { return error_of<DataError>([&] { load_example(checkpoint); }); };
  auto const write = [&](std::string const& content) {
    folder.on_rank_0([&] { std::ofstream(file, std::ios::binary) << content; });
  };

  for (std::size_t at : {std::size_t{0}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(damaged);
    EXPECT_NE(refusal().find(file.string() + " is damaged"), std::string::npos) << "byte " << at;
    EXPECT_EQ(verify_checkpoint(checkpoint).size(), 1U);
  }
  for (std::size_t length : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    write(whole.substr(0, length));
    EXPECT_NE(refusal().find("bytes"), std::string::npos) << "cut to " << length;
    EXPECT_EQ(verify_checkpoint(checkpoint).size(), 1U);
  }
  write(whole + " ");
  EXPECT_NE(refusal().find("bytes"), std::string::npos);
  folder.on_rank_0([&] { fs::remove(file); });
  EXPECT_NE(refusal().find("missing"), std::string::npos);
  folder.on_rank_0([&] { fs::create_directory(file); });
  EXPECT_NE(error_of<IoError>([&] { load_example(checkpoint); }).find(file.string()), std::string::npos);
  folder.on_rank_0([&] { fs::remove(file); });
  write(whole);
  EXPECT_EQ(load_example(checkpoint), "") << "whole again";
  EXPECT_EQ(verify_checkpoint(checkpoint), std::vector<std::string>{});
}

TEST(DamagedManifest, IsRefusedOnAllRanks) {
  SharedFolder const folder(world());
  save_example(folder.path(), 1);
  auto const checkpoint = find_checkpoint(folder.path()).value();
  auto const manifest = checkpoint.step_directory / "manifest.json";
  auto const whole = read_file(manifest);

  for (std::string const& text : {std::string(), std::string("{}"), whole.substr(0, whole.size() / 2)}) {
    folder.on_rank_0([&] { std::ofstream(manifest) << text; });
    EXPECT_NE(error_of<DataError>([&] { load_example(checkpoint); }).find("manifest.json"), std::string::npos);
    EXPECT_EQ(verify_checkpoint(checkpoint).size(), 1U);
  }
  folder.on_rank_0([&] { fs::remove(manifest); });
  EXPECT_NE(error_of<DataError>([&] { load_example(checkpoint); }).find("manifest.json"), std::string::npos);
}

TEST(ManifestWithAGap, NamesTensorAndIntervalOnAllRanks) {
  SharedFolder const folder(world());
  save_example(folder.path(), 1);
  auto const checkpoint = find_checkpoint(folder.path()).value();
  auto const manifest = checkpoint.step_directory / "manifest.json";
  folder.on_rank_0([&] {
    auto json = nlohmann::json::parse(read_file(manifest));
    for (auto& file : json["files"]) {
      auto& shards = file["shards"];
      for (std::size_t shard = 0; shard < shards.size(); ++shard) {
        if (shards[shard]["tensor"] == "block0/weight" && shards[shard]["end"] == 35) shards.erase(shard--);
      }
    }
    std::ofstream(manifest) << json.dump();
  });

  auto const message = error_of<DataError>([&] { load_example(checkpoint); });

  EXPECT_NE(message.find("block0/weight"), std::string::npos) << message;
  EXPECT_NE(message.find(", 35)"), std::string::npos) << message;
  EXPECT_EQ(verify_checkpoint(checkpoint).size(), 1U);
}

TEST(FullDisk, IsAnErrorOnAllRanksAndLeavesTheStepBefore) {
  SharedFolder const folder(world());
  save_example(folder.path(), 1);
  int const last = world().size() - 1;
  auto const bytes = fs::file_size(folder.path() / "step-00000001" / ("rank-000" + std::to_string(last) + ".h5"));
  world().barrier();

  // Wherever the file ends: in HDF5's first bytes, in the data, in what only the flush or the close writes.
  for (std::uintmax_t limit = 0; limit < bytes; limit += bytes / 23 + 1) {
    std::string message;
    {
      std::optional<FullDisk> full;
      if (world().rank() == last) full.emplace(limit);
      message = error_of<IoError>([&] { save_example(folder.path(), 2); });
    }

    EXPECT_NE(message.find("step-00000002"), std::string::npos) << limit << ": " << message;
    EXPECT_NE(message.find("File too large"), std::string::npos) << limit << ": " << message;
    if (last > 0) {
      EXPECT_NE(message.find("(rank " + std::to_string(last) + ")"), std::string::npos) << message;
    }
    EXPECT_FALSE(fs::exists(folder.path() / "step-00000002")) << "no part of the step is left";
    EXPECT_EQ(load_example(find_checkpoint(folder.path()).value()), "");
    EXPECT_EQ(find_checkpoint(folder.path())->step, 1);
    world().barrier();
  }
  save_example(folder.path(), 2);
  EXPECT_EQ(load_example(find_checkpoint(folder.path()).value()), "");
  EXPECT_EQ(find_checkpoint(folder.path())->step, 2);
}

TEST(FullDisk, WhileAStepIsReplacedLeavesTheOldContent) {
  SharedFolder const folder(world());
  save_example(folder.path(), 1);
  auto const manifest = read_file(folder.path() / "step-00000001" / "manifest.json");
  world().barrier();

  {
    std::optional<FullDisk> full;
    if (world().rank() == world().size() - 1) full.emplace(100);
    EXPECT_THROW(save_example(folder.path(), 1), IoError);
  }

  EXPECT_EQ(read_file(folder.path() / "step-00000001" / "manifest.json"), manifest);
  EXPECT_EQ(verify_checkpoint(find_checkpoint(folder.path()).value()), std::vector<std::string>{});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "step-00000001"), fs::directory_iterator()),
            find_checkpoint(folder.path())->num_files + 1)
      << "nothing of the new files is left";
}

TEST(FullDisk, AtTheManifestLeavesTheStepBefore) {
  SharedFolder const folder(world());
  if (world().size() == 1) GTEST_SKIP() << "rank 0 must have no file of its own";
  std::vector<float> data(100);
  std::vector<TensorShard> shards;  // on the last rank only, so that rank 0 writes the manifest and nothing else
  if (world().rank() == world().size() - 1) shards = {{"w", {100}, DataType::float32, 0, 100, data.data()}};
  save_checkpoint(world(), folder.path(), 1, shards, "{}");

  std::string message;
  {
    std::optional<FullDisk> full;
    if (world().rank() == 0) full.emplace(10);
    message = error_of<IoError>([&] { save_checkpoint(world(), folder.path(), 2, shards, "{}"); });
  }

  EXPECT_NE(message.find("manifest.json"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000002"));
  EXPECT_EQ(find_checkpoint(folder.path())->step, 1);
  EXPECT_EQ(verify_checkpoint(find_checkpoint(folder.path()).value()), std::vector<std::string>{});
}

TEST(MissingFolder, IsAnErrorOnAllRanks) {
  SharedFolder const folder(world());
  folder.on_rank_0([&] { std::ofstream(folder.path() / "file") << "not a folder"; });

  auto const message = error_of<IoError>([&] { save_example(folder.path() / "file", 1); });

  EXPECT_NE(message.find("file"), std::string::npos) << message;
  EXPECT_NE(message.find("(rank 0)") != std::string::npos, world().size() == 1) << message;
}

}  // namespace
}  // namespace ballast
