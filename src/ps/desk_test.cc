#include "ps/desk.h"

#include <gtest/gtest.h>

#include <numeric>

#include "net/manual_lane.h"
#include "ps/shard_testing.h"

namespace starling {
namespace {

constexpr uint32_t kDim = 1024;

class Answer final : public ReplySink {
 public:
  explicit Answer(Status& status) : status_(status) {}
  void finish(const Status& status, Message message) override {
    status_ = status.ok() ? status_of(message) : status;
  }

 private:
  Status& status_;
};

// A desk on a lane without a thread.
class DeskBench {
 public:
  DeskBench() {
    shared->report = [](const LaneReport&) {};
    desk->open({.incarnation = Incarnation{1}}, nullptr);
    v1::Event event;
    event.mutable_map()->set_version(1);
    event.mutable_map()->add_shards();
    for (uint32_t i = 0; i < kBuckets; ++i) event.mutable_map()->add_bucket_shard(0);
    desk->take_events({event}, false, 1);
  }

  Status call(Method method, Message message) {
    Status status = unavailable("not answered");
    desk->handle({.method = method, .message = std::move(message), .deadline = Deadline::never()},
                 Reply(std::make_shared<Answer>(status)));
    return status;
  }
  Message request(uint64_t number = 0) const {
    Message message;
    v1::Header* header = message.meta.mutable_header();
    header->set_role(v1::ROLE_TRAINER);
    header->set_role_id(7);
    header->set_generation(1);
    header->set_map_version(1);
    if (number == 0) return message;
    header->set_session(9);
    header->set_number(number);
    return message;
  }

  Metrics metrics;
  ManualLanes lanes;
  std::shared_ptr<PsShared> shared = std::make_shared<PsShared>(metrics, 1);
  std::shared_ptr<PsDesk> desk = std::make_shared<PsDesk>(lanes.make(), shared);
};

TEST(PsDesk, ALaneWithTimeMakesMemoryForRowsToCome) {
  DeskBench bench;
  Message create = bench.request();
  *create.meta.mutable_create()->add_tables() = ShardBench::plain_table("rows", kDim);
  ASSERT_EQ(bench.call(Method::kPsCreate, std::move(create)), absl::OkStatus());
  Message freeze = bench.request();
  freeze.meta.mutable_freeze();
  ASSERT_EQ(bench.call(Method::kPsFreeze, std::move(freeze)), absl::OkStatus());
  // Rows for half of a huge page and one more: what is present does not reach half a page further.
  std::vector<uint64_t> keys(kHugePageBytes / 2 / (kDim * sizeof(float)) + 1);
  std::iota(keys.begin(), keys.end(), 1);
  Message push = bench.request(1);
  v1::KeyGradPart* part = push.meta.mutable_push_grad()->add_keys();
  part->set_table("rows");
  part->set_keys_tensor(ShardBench::add(push, ShardBench::list(keys)));
  part->set_grads_tensor(ShardBench::add(
      push, ShardBench::matrix(keys.size(), kDim, std::vector<float>(keys.size() * kDim))));
  ASSERT_EQ(bench.call(Method::kPsPushGrad, std::move(push)), absl::OkStatus());
  const size_t before = bench.desk->shard()->memory_bytes();
  while (bench.lanes.step()) {
  }
  EXPECT_GE(bench.desk->shard()->memory_bytes(), before + kHugePageBytes);
  EXPECT_FALSE(bench.desk->shard()->prepare()) << "it has rested until nothing was left to do";
}

}  // namespace
}  // namespace starling
