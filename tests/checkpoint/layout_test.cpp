// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layout.hpp"

#include "ballast/base/error.hpp"

#include <random>

#include <gtest/gtest.h>

namespace ballast::detail {
namespace {

float somewhere[64];

TensorShard shard(std::string const& name, std::int64_t begin, std::int64_t end,
                  std::vector<std::int64_t> shape = {12}) {
  return {name, std::move(shape), DataType::float32, begin, end, somewhere};
}

using Ranks = std::vector<std::vector<TensorShard>>;

SaveLayout layout_of(Ranks const& ranks) {
  std::vector<std::string> descriptions;
  for (auto const& shards : ranks) descriptions.push_back(describe_shards(7, shards));
  return make_layout(descriptions);
}

std::string refusal(Ranks const& ranks) {
  try {
    layout_of(ranks);
  } catch (InvalidArgument const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SaveLayout, GivesEachIntervalToTheLowestRankThatHoldsIt) {
  auto const layout =
      layout_of({{shard("w", 0, 6), shard("b", 0, 12)}, {shard("w", 6, 12), shard("b", 0, 12)}, {shard("w", 6, 12)}});

  using Stored = std::vector<StoredShard>;
  EXPECT_EQ(layout.tensors,
            (std::vector<CheckpointTensor>{{"b", {12}, DataType::float32}, {"w", {12}, DataType::float32}}));
  EXPECT_EQ(layout.shards[0], (Stored{{"w", 0, 6, "/w/0-6"}, {"b", 0, 12, "/b/0-12"}}));
  EXPECT_EQ(layout.shards[1], (Stored{{"w", 6, 12, "/w/6-12"}}));
  EXPECT_EQ(layout.shards[2], Stored{});
}

TEST(SaveLayout, KeepsTensorsWithoutElementsAndScalars) {
  auto const layout =
      layout_of({{shard("none", 0, 0, {0, 4}), shard("scalar", 0, 1, {})}, {shard("none", 0, 0, {0, 4})}});

  EXPECT_EQ(layout.tensors.size(), 2U);
  EXPECT_EQ(layout.shards[0].size(), 1U);
}

TEST(SaveLayout, RefusesGapsOverlapsAndDisagreement) {
  EXPECT_EQ(refusal({{shard("w", 0, 6)}, {shard("w", 7, 12)}}), "tensor w: no rank holds [6, 7)");
  EXPECT_EQ(refusal({{shard("w", 0, 6)}, {}}), "tensor w: no rank holds [6, 12)");
  EXPECT_EQ(refusal({{shard("w", 2, 12)}}), "tensor w: no rank holds [0, 2)");
  EXPECT_EQ(refusal({{shard("w", 0, 7)}, {shard("w", 6, 12)}}), "tensor w: its shards overlap in [6, 7)");
  EXPECT_NE(refusal({{shard("w", 0, 12)}, {shard("w", 0, 6)}}).find("overlap"), std::string::npos);
  EXPECT_NE(refusal({{shard("w", 0, 12)}, {shard("w", 3, 6)}}).find("overlap"), std::string::npos);
  EXPECT_NE(refusal({{shard("w", 0, 12), shard("w", 0, 12)}}).find("twice"), std::string::npos);
  EXPECT_NE(refusal({{shard("w", 0, 12)}, {shard("w", 0, 12, {3, 4})}}).find("on rank 1"), std::string::npos);
  auto other = shard("w", 0, 12);
  other.type = DataType::int32;
  EXPECT_NE(refusal({{shard("w", 0, 12)}, {other}}).find("int32"), std::string::npos);
  EXPECT_THROW(make_layout({describe_shards(7, {}), describe_shards(8, {})}), InvalidArgument);
}

TEST(SaveLayout, RefusesImpossibleShards) {
  constexpr auto huge = std::int64_t{1} << 62;
  EXPECT_NE(refusal({{shard("w", -1, 12)}}), "accepted");
  EXPECT_NE(refusal({{shard("w", 0, 13)}}), "accepted");
  EXPECT_NE(refusal({{shard("w", 6, 5)}}), "accepted");
  EXPECT_NE(refusal({{shard("w", 0, 1, {-1, -1})}}), "accepted");
  EXPECT_NE(refusal({{shard("w", 0, 1, {huge})}}), "accepted");
  EXPECT_NE(refusal({{shard("w", 0, 1, {1 << 30, 1 << 30, 1 << 30})}}), "accepted");
  auto missing = shard("w", 0, 12);
  missing.data = nullptr;
  EXPECT_NE(refusal({{missing}}).find("no data"), std::string::npos);
  EXPECT_THROW(describe_shards(-1, {}), InvalidArgument);
}

TEST(SaveLayout, RefusesNamesThatMakeNoPath) {
  for (std::string const name : {"", "/", "/w", "w/", "a//b", ".", "..", "a/../b", "a/./b", "w/0-12", "3-9", "a\nb",
                                 "a\x7f", "\xff\xfe", "\xc3"}) {
    EXPECT_NE(refusal({{shard(name, 0, 12)}}), "accepted") << name;
  }
  EXPECT_NE(refusal({{shard(std::string("a\0b", 3), 0, 12)}}), "accepted");
  EXPECT_NE(refusal({{shard(std::string(1001, 'a'), 0, 12)}}), "accepted");
  for (std::string const name : {"w", "a b", "a/b", "a.b.0.weight", "größe ⚓", "0", "-", "1-", "-1", "a-1", "1-b",
                                 "...", "\"quoted\"", "back\\slash", "[0]"}) {
    EXPECT_EQ(refusal({{shard(name, 0, 12)}}), "accepted") << name;
  }
}

Manifest manifest_of(SaveLayout const& layout) {
  Manifest manifest{7, layout.tensors, {}, "{}"};
  for (auto const& shards : layout.shards)
    manifest.files.push_back({"file" + std::to_string(manifest.files.size()), 0, "", shards});
  return manifest;
}

TEST(PlanReads, CutsWhatIsNeededOutOfWhatIsThere) {
  auto const manifest = manifest_of(layout_of({{shard("w", 0, 5)}, {shard("w", 5, 12)}}));

  auto const reads = plan_reads(manifest, {shard("w", 3, 9)});

  ASSERT_EQ(reads.size(), 2U);
  ASSERT_EQ(reads[0].size(), 1U);
  ASSERT_EQ(reads[1].size(), 1U);
  EXPECT_EQ(reads[0][0].offset, 3);
  EXPECT_EQ(reads[0][0].count, 2);
  EXPECT_EQ(reads[0][0].size, 5);
  EXPECT_EQ(reads[0][0].data, somewhere);
  EXPECT_EQ(reads[1][0].offset, 0);
  EXPECT_EQ(reads[1][0].count, 4);
  EXPECT_EQ(reads[1][0].data, somewhere + 2);
}

TEST(PlanReads, NeedsNoFileForNothing) {
  auto const manifest = manifest_of(layout_of({{shard("w", 0, 12)}}));

  EXPECT_TRUE(plan_reads(manifest, {shard("w", 4, 4), shard("w", 12, 12)})[0].empty());
}

TEST(PlanReads, NamesTensorAndIntervalThatIsMissing) {
  auto manifest = manifest_of(layout_of({{shard("w", 0, 4)}, {shard("w", 4, 8)}, {shard("w", 8, 12)}}));
  manifest.files.erase(manifest.files.begin() + 1);

  EXPECT_NO_THROW(plan_reads(manifest, {shard("w", 0, 4), shard("w", 9, 12)}));
  try {
    plan_reads(manifest, {shard("w", 3, 9)});
    ADD_FAILURE() << "accepted";
  } catch (DataError const& error) {
    EXPECT_EQ(std::string(error.what()), "the checkpoint does not hold [4, 8) of tensor w");
  }
  EXPECT_THROW(plan_reads(manifest, {shard("w", 6, 7)}), DataError);
}

TEST(PlanReads, RefusesAnotherModel) {
  auto const manifest = manifest_of(layout_of({{shard("w", 0, 12)}}));
  auto other = shard("w", 0, 12);
  other.type = DataType::int32;

  EXPECT_THROW(plan_reads(manifest, {shard("v", 0, 12)}), InvalidArgument);
  EXPECT_THROW(plan_reads(manifest, {shard("w", 0, 12, {3, 4})}), InvalidArgument);
  EXPECT_THROW(plan_reads(manifest, {other}), InvalidArgument);
}

TEST(PlanReads, FillsEveryElementOnceForAnyCuts) {
  constexpr std::int64_t elements = 64;
  unsigned const seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto const cuts = [&] {
    std::vector<std::int64_t> all = {0, elements};
    for (int cut = 0; cut < 5; ++cut) all.push_back(static_cast<std::int64_t>(random() % (elements + 1)));
    std::sort(all.begin(), all.end());
    return all;
  };
  for (int round = 0; round < 200; ++round) {
    Ranks ranks;
    auto const stored = cuts();
    for (std::size_t at = 0; at + 1 < stored.size(); ++at)
      ranks.push_back({shard("w", stored[at], stored[at + 1], {8, 8})});
    auto const manifest = manifest_of(layout_of(ranks));
    EXPECT_EQ(coverage_faults(manifest), std::vector<std::string>{});

    std::vector<float> loaded(elements, -1);
    auto const wanted = cuts();
    for (std::size_t at = 0; at + 1 < wanted.size(); ++at) {
      TensorShard const part{"w", {8, 8}, DataType::float32, wanted[at], wanted[at + 1], loaded.data() + wanted[at]};
      auto const reads = plan_reads(manifest, {part});
      for (std::size_t file = 0; file < reads.size(); ++file) {
        for (auto const& read : reads[file]) {
          auto const first = manifest.files[file].shards[0].begin + read.offset;
          for (std::int64_t element = 0; element < read.count; ++element) {
            EXPECT_EQ(static_cast<float*>(read.data)[element], -1) << "filled twice";
            static_cast<float*>(read.data)[element] = static_cast<float>(first + element);
          }
        }
      }
    }
    for (std::int64_t element = 0; element < elements; ++element)
      EXPECT_EQ(loaded[element], static_cast<float>(element));
  }
}

TEST(Coverage, NamesGapsAndDoubles) {
  auto manifest = manifest_of(layout_of({{shard("w", 0, 4)}, {shard("w", 4, 12)}}));
  manifest.files.push_back({"more", 0, "", {{"w", 3, 6, "/w/3-6"}}});
  manifest.tensors.push_back({"x", {5}, DataType::int64});

  std::vector<std::string> const expected = {"tensor w: [3, 4) is stored twice", "tensor w: [4, 6) is stored twice",
                                             "tensor x: no file holds [0, 5)"};
  EXPECT_EQ(coverage_faults(manifest), expected);
}

}  // namespace
}  // namespace ballast::detail
