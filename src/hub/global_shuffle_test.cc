#include "hub/global_shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace starling {
namespace {

using testing::UnorderedElementsAreArray;

constexpr uint64_t kSlice = 16;

std::shared_ptr<const SampleSchema> schema() {
  auto out = std::make_shared<SampleSchema>();
  out->keys.push_back({.name = "k", .table = "k"});
  out->labels.push_back("label");
  return out;
}

// Files of 1, 2, 3, ... times 10 samples, numbered through all of them.
class GlobalShuffleTest : public testing::Test {
 protected:
  GlobalShuffleTest() : schema_(schema()) {
    uint64_t number = 0;
    for (uint32_t file = 0; file < 4; ++file) {
      auto block = std::make_shared<SampleBlock>(schema_);
      for (uint32_t i = 0; i < (file + 1) * 10; ++i, ++number) {
        block->begin()[0] = static_cast<float>(number);
        block->add_key(0, static_cast<Key>(number * 3));
        block->end();
      }
      counts_.push_back(block->samples());
      files_.push_back({block});
    }
  }
  GlobalShuffle make(const std::vector<uint32_t>& files, uint64_t seed = 7) {
    GlobalShuffle out(seed, kSlice);
    EXPECT_TRUE(out.set_counts(counts_).ok());
    for (const uint32_t file : files) out.hold(file, files_[file]);
    return out;
  }
  // The whole epoch as the first hub gets it, with what the others send.
  std::vector<float> epoch_of(std::vector<GlobalShuffle>& hubs, uint32_t epoch) {
    std::vector<float> out;
    for (uint32_t slice = 0; slice < hubs[0].slices(); ++slice) {
      hubs[0].begin(epoch, slice, schema_);
      hubs[0].take_own();
      for (size_t from = 1; from < hubs.size(); ++from) {
        uint64_t at = 0;
        for (bool is_last = false; !is_last;) {
          const auto sent = hubs[from].records(epoch, slice, at, 100);
          EXPECT_TRUE(hubs[0].take(sent.bytes).ok());
          EXPECT_EQ(*hubs[0].take(sent.bytes), 0U);  // once more changes nothing
          is_last = sent.is_last;
        }
      }
      EXPECT_TRUE(hubs[0].is_whole()) << hubs[0].missing();
      for (const auto& block : hubs[0].finish()) {
        for (uint32_t i = 0; i < block->samples(); ++i) {
          out.push_back(block->labels(i)[0]);
          EXPECT_EQ(static_cast<float>(value(block->sample_keys(i)[0])), out.back() * 3);
        }
      }
    }
    return out;
  }
  std::vector<float> epoch_of(const std::vector<std::vector<uint32_t>>& held, uint32_t epoch) {
    std::vector<GlobalShuffle> hubs;
    for (const auto& files : held) hubs.push_back(make(files));
    return epoch_of(hubs, epoch);
  }

  std::shared_ptr<const SampleSchema> schema_;
  std::vector<SampleBlocks> files_;
  std::vector<uint64_t> counts_;
};

TEST_F(GlobalShuffleTest, AnEpochIsAPermutationThatDependsOnSeedAndEpochAlone) {
  const std::vector<float> alone = epoch_of({{0, 1, 2, 3}}, 0);
  std::vector<float> all(100);
  std::iota(all.begin(), all.end(), 0.0F);
  EXPECT_NE(alone, all);
  EXPECT_THAT(alone, UnorderedElementsAreArray(all));
  EXPECT_EQ(epoch_of({{1}, {0, 3}, {2}}, 0), alone);
  EXPECT_EQ(epoch_of({{}, {3, 1}, {2, 0}}, 0), alone);
  EXPECT_NE(epoch_of({{0, 1, 2, 3}}, 1), alone);
  std::vector<GlobalShuffle> other;
  other.push_back(make({0, 1, 2, 3}, 8));
  EXPECT_NE(epoch_of(other, 0), alone);
}

TEST_F(GlobalShuffleTest, WaitsForTheSamplesOfAHubThatIsGone) {
  GlobalShuffle hub = make({0, 1, 2});
  hub.begin(0, 1, schema_);
  hub.take_own();
  EXPECT_FALSE(hub.is_whole());
  const uint64_t missing = hub.missing();
  hub.hold(3, files_[3]);
  EXPECT_EQ(hub.take_own(), missing);
  EXPECT_TRUE(hub.is_whole());
}

TEST_F(GlobalShuffleTest, OtherBytesAreRefused) {
  GlobalShuffle hub = make({});
  hub.begin(0, 0, schema_);
  EXPECT_EQ(hub.take("short").status().code(), StatusCode::kInvalidArgument);
  GlobalShuffle other = make({0, 1, 2, 3});
  uint64_t at = 0;
  std::string sent = other.records(0, 0, at, 1 << 20).bytes;
  EXPECT_EQ(hub.take(sent.substr(0, sent.size() - 1)).status().code(),
            StatusCode::kInvalidArgument);
  sent[0] = 17;  // a place behind the slice
  EXPECT_EQ(hub.take(sent).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(GlobalShuffleTest, TheLastSliceHasTheRest) {
  const GlobalShuffle hub = make({});
  EXPECT_EQ(hub.slices(), 7U);
  EXPECT_EQ(hub.slice_samples(6), 4U);
  EXPECT_EQ(hub.slice_samples(7), 0U);
}

}  // namespace
}  // namespace starling
