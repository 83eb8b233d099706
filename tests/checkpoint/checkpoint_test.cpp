// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/checkpoint.hpp"

#include "ballast/base/file.hpp"
#include "ballast/comm/collective.hpp"
#include "checkpoint/shared_folder.hpp"
#include "example_tensors.hpp"
#include "support/mpi_test.hpp"

#include <fstream>
#include <set>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::example_shards;
using test::Shards;
using test::SharedFolder;
using test::world;

mode_t mode_of(fs::path const& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

/// Saves one float32 tensor "w" whose elements are all `value`, in equal parts. Collective over the world.
fs::path save_value(fs::path const& directory, std::int64_t step, float value, SaveOptions const& options = {}) {
  std::vector<float> data(10, value);
  std::int64_t const begin = 10 * world().rank();
  std::vector<TensorShard> const shards = {
      {"w", {10 * world().size()}, DataType::float32, begin, begin + 10, data.data()}};
  return save_checkpoint(world(), directory, step, shards, R"({"value":)" + std::to_string(value) + "}", options);
}

/// Loads this rank's part of "w"; all elements must be the same. Collective over the world.
float load_value(CheckpointInfo const& checkpoint) {
  std::vector<float> data(10, -1);
  std::int64_t const begin = 10 * world().rank();
  load_checkpoint(world(), checkpoint,
                  {{"w", {10 * world().size()}, DataType::float32, begin, begin + 10, data.data()}});
  EXPECT_EQ(data, std::vector<float>(10, data[0]));
  return data[0];
}

/// The committed steps with a manifest that can be read, newest first.
std::vector<CheckpointInfo> readable_steps(fs::path const& directory) {
  std::vector<CheckpointInfo> steps;
  for (auto const& path : committed_steps(directory)) {
    try {
      steps.push_back(read_manifest(path));
    } catch (DataError const&) {  // the tests count those that are left
    }
  }
  return steps;
}

TEST(Checkpoint, LoadsBitEqualOnAnyNumberOfRanks) {
  SharedFolder const folder(world());
  auto saved = example_shards(world().rank(), world().size(), true);

  save_checkpoint(world(), folder.path(), 7, saved.list(), "{}");

  auto const checkpoint = find_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->tensors, test::example_tensors());
  for (int size = 1; size <= world().size(); ++size) {
    // The other ranks load, too, as a group of their own.
    auto const part = world().split(world().rank() < size ? 0 : 1, world().rank());
    auto loaded = example_shards(part->rank(), part->size(), false);
    load_checkpoint(*part, *checkpoint, loaded.list());
    EXPECT_EQ(loaded.first_difference(), "") << "on " << part->size() << " ranks";
  }
}

TEST(Checkpoint, LoadsWhatMoreRanksSaved) {
  SharedFolder const folder(world());
  for (int size = 1; size <= world().size(); ++size) {
    auto const part = world().split(world().rank() < size ? 0 : -1, world().rank());
    if (part) {
      auto saved = example_shards(part->rank(), size, true);
      save_checkpoint(*part, folder.path(), size, saved.list(), "{}", {0});
    }
    world().barrier();

    auto loaded = example_shards(world().rank(), world().size(), false);
    load_checkpoint(world(), find_checkpoint(folder.path()).value(), loaded.list());

    EXPECT_EQ(loaded.first_difference(), "") << "saved by " << size << " ranks";
  }
}

TEST(Checkpoint, SaysWhatItHolds) {
  SharedFolder const folder(world());
  std::string const metadata = R"({"config": {"b": [1.5, null], "a": "ü"}, "seed": 18446744073709551615})";
  auto saved = example_shards(world().rank(), world().size(), true);

  auto const path = save_checkpoint(world(), folder.path(), 123, saved.list(), metadata);

  EXPECT_EQ(path, folder.path() / "step-00000123");
  auto const checkpoint = read_manifest(path);
  EXPECT_EQ(checkpoint.step, 123);
  EXPECT_EQ(checkpoint.step_directory, path);
  EXPECT_LE(checkpoint.num_files, world().size());
  EXPECT_GT(checkpoint.num_bytes, 0);
  EXPECT_EQ(nlohmann::json::parse(checkpoint.metadata), nlohmann::json::parse(metadata));
  EXPECT_EQ(read_file(folder.path() / "latest"), "step-00000123\n");
  EXPECT_EQ(find_checkpoint(path)->step, 123) << "a step directory itself";
  EXPECT_EQ(verify_checkpoint(checkpoint), std::vector<std::string>{});
}

TEST(Checkpoint, KeepsFilesToTheUserWhateverTheUmask) {
  SharedFolder const folder(world());
  for (mode_t const mask : {0000, 0777}) {
    auto const old = ::umask(mask);
    auto const path = save_value(folder.path() / "new" / std::to_string(mask), 1, 1.0F);
    ::umask(old);

    EXPECT_EQ(mode_of(path.parent_path()), 0700U);
    EXPECT_EQ(mode_of(path), 0700U);
    for (auto const& entry : fs::directory_iterator(path)) EXPECT_EQ(mode_of(entry), 0600U) << entry;
    EXPECT_EQ(mode_of(path.parent_path() / "latest"), 0600U);
  }
}

TEST(Checkpoint, LeavesNothingButTheStep) {
  SharedFolder const folder(world());

  auto const path = save_value(folder.path(), 1, 1.0F);

  auto const entries = [](fs::path const& directory) {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
    return names;
  };
  std::set<std::string> expected = {"manifest.json"};
  for (int rank = 0; rank < world().size(); ++rank) expected.insert("rank-000" + std::to_string(rank) + ".h5");
  EXPECT_EQ(entries(path), expected);
  EXPECT_EQ(entries(folder.path()), (std::set<std::string>{"latest", "step-00000001"}));
}

TEST(Checkpoint, ReplacesACompleteStepAsAWhole) {
  SharedFolder const folder(world());

  for (int round = 0; round < 3; ++round) {
    auto const path = save_value(folder.path(), 5, static_cast<float>(round));

    EXPECT_EQ(load_value(find_checkpoint(folder.path()).value()), static_cast<float>(round));
    EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), world().size() + 1);
    world().barrier();
  }
}

TEST(Checkpoint, KeepsTheNewestStepsOnly) {
  SharedFolder const folder(world());

  for (std::int64_t step = 1; step <= 5; ++step) save_value(folder.path(), step, static_cast<float>(step), {2});
  auto const two = readable_steps(folder.path());
  world().barrier();
  for (std::int64_t step = 6; step <= 8; ++step) save_value(folder.path(), step, static_cast<float>(step), {0});
  auto const all = readable_steps(folder.path());

  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].step, 5);
  EXPECT_EQ(two[1].step, 4);
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 6);
}

TEST(Checkpoint, PruningSparesLaterStepsAndDoesNotCountDamagedOnes) {
  SharedFolder const folder(world());
  for (std::int64_t step : {1, 2, 3, 9}) save_value(folder.path(), step, static_cast<float>(step), {0});
  folder.on_rank_0([&] { std::ofstream(folder.path() / "step-00000003" / "manifest.json") << "{"; });

  // Training went back to before 9.
  save_value(folder.path(), 4, 4.0F, {2});

  auto const left = readable_steps(folder.path());
  ASSERT_EQ(left.size(), 3U);
  EXPECT_EQ(left[0].step, 9);
  EXPECT_EQ(left[1].step, 4);
  EXPECT_EQ(left[2].step, 2) << "3 is damaged, so 2 is the second newest";
}

TEST(Checkpoint, AStepWithoutManifestIsNoStep) {
  SharedFolder const folder(world());
  save_value(folder.path(), 1, 1.0F);
  auto const killed = save_value(folder.path(), 2, 2.0F);
  folder.on_rank_0([&] {  // as if the job had been killed between the files and the manifest
    fs::remove(killed / "manifest.json");
    fs::copy(killed, folder.path() / "step-00000003");
    std::ofstream(folder.path() / "step-00000003" / "rank-0009.h5.tmp") << "half";
  });

  EXPECT_EQ(load_value(find_checkpoint(folder.path()).value()), 1.0F);
  EXPECT_THROW(read_manifest(killed), DataError);
  world().barrier();

  // The next save of that step starts afresh, and pruning removes the other one.
  save_value(folder.path(), 3, 3.0F);
  EXPECT_EQ(load_value(find_checkpoint(folder.path()).value()), 3.0F);
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000003" / "rank-0009.h5.tmp"));
}

TEST(Checkpoint, FindsNothingWhereNothingIs) {
  SharedFolder const folder(world());
  folder.on_rank_0([&] {
    fs::create_directory(folder.path() / "step-00000001");
    fs::create_directory(folder.path() / "step-1");
    fs::create_directory(folder.path() / "step-0000000x");
    std::ofstream(folder.path() / "step-00000002") << "a file";
    std::ofstream(folder.path() / "latest") << "step-00000001\n";
  });

  EXPECT_FALSE(find_checkpoint(folder.path()));
  EXPECT_FALSE(find_checkpoint(folder.path() / "missing"));
  EXPECT_FALSE(find_checkpoint(folder.path() / "latest" / "below-a-file"));
  EXPECT_EQ(readable_steps(folder.path()).size(), 0U);
}

TEST(Checkpoint, FallsBackWhenAManifestIsDamaged) {
  SharedFolder const folder(world());
  save_value(folder.path(), 1, 1.0F);
  auto const newest = save_value(folder.path(), 2, 2.0F);
  folder.on_rank_0([&] { fs::resize_file(newest / "manifest.json", 100); });

  EXPECT_EQ(load_value(find_checkpoint(folder.path()).value()), 1.0F);
  EXPECT_EQ(readable_steps(folder.path()).size(), 1U);

  folder.on_rank_0([&] { fs::remove_all(folder.path() / "step-00000001"); });
  EXPECT_THROW(find_checkpoint(folder.path()), DataError) << "nothing is left to fall back to";
}

TEST(Checkpoint, RefusesAManifestOfAnotherStep) {
  SharedFolder const folder(world());
  auto const path = save_value(folder.path(), 1, 1.0F);
  folder.on_rank_0([&] {
    fs::copy(path, folder.path() / "step-00000002");
    fs::copy(path, folder.path() / "best");
  });

  EXPECT_THROW(read_manifest(folder.path() / "step-00000002"), DataError);
  EXPECT_EQ(find_checkpoint(folder.path())->step, 1);
  EXPECT_EQ(load_value(find_checkpoint(folder.path() / "best").value()), 1.0F);
}

TEST(Checkpoint, RefusesOnAllRanksWhatOneRankGetsWrong) {
  SharedFolder const folder(world());
  std::vector<float> data(10);
  int const last = world().size() - 1;
  TensorShard shard{"w", {10}, DataType::float32, 0, 10, data.data()};
  auto const refusal = [&](TensorShard const& mine, std::string const& metadata, std::int64_t step = 1, int keep = 3) {
    auto const message =
        error_of<InvalidArgument>([&] { save_checkpoint(world(), folder.path(), step, {mine}, metadata, {keep}); });
    world().barrier();
    return message;
  };

  auto wrong = shard;
  if (world().rank() == last) wrong.name = "a//b";
  EXPECT_NE(refusal(wrong, "{}").find("a//b"), std::string::npos);
  wrong = shard;
  if (world().rank() == last) wrong.end = 11;
  EXPECT_NE(refusal(wrong, "{}").find("[0, 11)"), std::string::npos);
  EXPECT_NE(refusal(shard, world().rank() == last ? "[]" : "{}").find("metadata"), std::string::npos);
  EXPECT_NE(refusal(shard, world().rank() == last ? "{" : "{}").find("metadata"), std::string::npos);
  EXPECT_NE(refusal(shard, "{}", world().rank() == last ? -1 : 1).find("step"), std::string::npos);
  EXPECT_NE(refusal(shard, "{}", 1, world().rank() == last ? -1 : 1).find("keep"), std::string::npos);
  if (last > 0) {
    wrong = shard;
    if (world().rank() == last) wrong.begin = 5;
    EXPECT_NE(refusal(wrong, "{}").find("overlap"), std::string::npos);
    EXPECT_NE(refusal(shard, "{}", world().rank() == last ? 2 : 1).find("step"), std::string::npos);
  }
  EXPECT_FALSE(find_checkpoint(folder.path()));
  EXPECT_EQ(fs::directory_iterator(folder.path()), fs::directory_iterator()) << "nothing was even begun";
}

TEST(Checkpoint, RefusesAnotherModelOnAllRanks) {
  SharedFolder const folder(world());
  save_value(folder.path(), 1, 1.0F);
  auto const checkpoint = find_checkpoint(folder.path()).value();
  std::vector<float> data(10);
  bool const is_last = world().rank() == world().size() - 1;
  TensorShard const right{"w", {10 * world().size()}, DataType::float32, 0, 10, data.data()};
  auto unknown = right;
  unknown.name = "v";
  auto shape = right;
  shape.shape = {10, world().size()};
  auto type = right;
  type.type = DataType::int32;

  for (auto const& wrong : {unknown, shape, type}) {
    auto const message =
        error_of<InvalidArgument>([&] { load_checkpoint(world(), checkpoint, {is_last ? wrong : right}); });
    EXPECT_NE(message.find(wrong.name), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ballast
