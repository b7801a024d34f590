// Any bytes as a record of the scheduler's journal, and what lies under its keys as the state that
// a scheduler goes on from.
#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "scheduler/ledger_space.h"
#include "scheduler/scheduler.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

void check(std::span<const std::byte> bytes) {
  static const SchedulerOptions options;
  LedgerSpace space;
  if (const Status status = space.apply_record(bytes); !status.ok()) {
    STARLING_CHECK(status.code() == StatusCode::kDataLoss, "damage is DataLoss");
    return;
  }
  const std::vector<LedgerEntry> entries = space.list("");
  size_t live_bytes = 0;
  for (const LedgerEntry& entry : entries) live_bytes += entry.key.size() + entry.value.size();
  STARLING_CHECK(live_bytes == space.live_bytes(), "the bytes that live are counted");
  LedgerSpace again;
  for (const std::string& record : space.snapshot(64)) {
    STARLING_CHECK(again.apply_record(std::as_bytes(std::span(record))).ok(), "a snapshot applies");
  }
  STARLING_CHECK(again.revision() == space.revision() && again.list("").size() == entries.size(),
                 "a space survives its snapshot");
  const auto scheduler = Scheduler::restore(options, entries, TimePoint(seconds(100)));
  STARLING_CHECK(scheduler.ok() || scheduler.status().code() == StatusCode::kDataLoss,
                 "damage is DataLoss");
}

template <typename Record>
void put(ledger::Transaction& out, const std::string& key, const Record& record) {
  ledger::Write& write = *out.add_writes();
  write.set_key(key);
  write.set_value(record.SerializeAsString());
  write.set_revision(static_cast<uint64_t>(out.writes_size()));
}

// Who is there: a ps, a trainer's rank and what was announced of it, and the map.
ledger::Transaction members() {
  ledger::Transaction out;
  ledger::JobRecord job;
  job.set_next_node(3);
  job.set_revision(9);
  job.mutable_job()->set_generation(2);
  put(out, "job", job);
  ledger::NodeRecord node;
  node.mutable_node()->set_name("ps-0");
  node.mutable_node()->set_id(1);
  node.add_fenced(5);
  put(out, "node/ps-0", node);
  ledger::RankRecord rank;
  rank.set_rank(1);
  rank.set_node(2);
  rank.set_leave_clock(4);
  put(out, "rank/1", rank);
  ledger::ChangeRecord change;
  change.set_id(1);
  change.set_kind(ledger::CHANGE_JOIN);
  change.add_ranks(1);
  put(out, "change/1", change);
  v1::ShardMap map;
  map.set_version(2);
  map.add_bucket_shard(1);
  put(out, "map", map);
  return out;
}

// What is under way: a barrier, a queue with an item, a key, an answered request, a cut.
ledger::Transaction work() {
  ledger::Transaction out;
  ledger::BarrierRecord barrier;
  barrier.set_name("b");
  barrier.add_arrivals()->set_node("ps-0");
  put(out, "barrier/b", barrier);
  ledger::QueueRecord queue;
  queue.set_queue("q");
  queue.set_complete(true);
  put(out, "queue/q/0", queue);
  ledger::ItemRecord item;
  item.set_queue("q");
  item.mutable_work()->set_item(3);
  item.set_node(1);
  item.set_done_below(6);
  put(out, "item/q/0/3", item);
  ledger::KeyRecord key;
  key.mutable_value()->set_key("k");
  key.mutable_value()->set_value("v");
  put(out, "key/k", key);
  ledger::SessionRecord session;
  session.set_session(7);
  session.set_number(2);
  session.mutable_reply()->mutable_status()->set_code(5);
  put(out, "session/7/2", session);
  ledger::CutRecord cut;
  cut.set_writing_manifest(true);
  cut.mutable_cut()->set_phase(v1::CUT_PHASE_WRITE);
  cut.add_reports()->set_node("ps-0");
  put(out, "cut", cut);
  return out;
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  google::protobuf::SetLogHandler(nullptr);
  ledger::Transaction erasing = members();
  erasing.add_writes()->set_key("map");
  erasing.mutable_writes(erasing.writes_size() - 1)->set_erased(true);
  erasing.mutable_writes(erasing.writes_size() - 1)->set_revision(20);
  return {
      {"record",
       check,
       {members().SerializeAsString(), work().SerializeAsString(), erasing.SerializeAsString()}}};
}
