// SchedulerOptions: what a job's scheduler is told at its start, and the maximum of everything that
// it keeps.
//
// Uses: base. Threads: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace starling {

struct SchedulerLimits {
  uint32_t nodes_max = 4096;             // known by name; those that left or died go first
  uint32_t lanes_max = 4096;             // shards of all ps: more would leave some without a bucket
  uint32_t ranks_max = 65536;            // of all trainers, those that left included
  uint32_t fenced_max = 64;              // former incarnations of one name; the oldest go first
  uint32_t name_bytes_max = 256;         // of a node, a barrier, a queue, a key
  uint32_t events_max = 16384;           // kept for watchers; the oldest go first (`whole`)
  size_t events_bytes_max = 64 << 20;    // the same
  uint32_t watchers_max = 8192;          // beyond it ResourceExhausted
  uint32_t barriers_max = 1024;          // names; those that nobody waits at go first
  uint32_t queues_max = 256;             // beyond it ResourceExhausted
  uint32_t items_max = 1 << 18;          // of all queues; beyond it ResourceExhausted
  size_t position_bytes_max = 64 << 10;  // of one work item or hub
  uint32_t keys_max = 65536;             // of the key-value space; beyond it ResourceExhausted
  size_t value_bytes_max = 1 << 20;      // of one key
  size_t values_bytes_max = 256 << 20;   // of all keys; beyond it ResourceExhausted
  uint32_t sessions_max = 8192;          // the one that was used least recently goes first
  uint32_t window_max = 4096;            // open numbers of one session (REASON_WINDOW_FULL)
  uint32_t changes_max = 4096;           // announced and not confirmed; beyond it Unavailable
};

struct SchedulerOptions {
  // The job; what the ledger has is stronger.
  std::string job_name = "job";
  uint64_t seed = 0;
  std::optional<uint32_t> staleness;  // none: without bound
  std::string checkpoint_path;        // where cuts go that do not say where
  uint64_t first_cut = 1;             // of a new ledger: above every cut of an earlier one

  Duration lease = seconds(5);              // a node silent for so long is dead; 100 ms .. 1 h
  Duration heartbeat = milliseconds(1000);  // how often nodes beat; at most lease / 2
  Duration work_lease = seconds(60);        // of a work item that is not renewed

  // How many nodes the job starts with. Before they are all there no map is made and no group
  // barrier passes. 0: any number.
  uint32_t ps_expected = 0;
  uint32_t hubs_expected = 0;
  uint32_t trainers_expected = 0;

  // Joins, leaves and changes of the staleness are announced so many clocks ahead at first, twice
  // as many each time that some ps was faster.
  uint64_t lead_clocks = 8;
  Duration drain_max = seconds(600);     // the longest drain of a cut
  Duration snapshot_max = seconds(120);  // until every shard and hub holds the moment
  Duration write_max = seconds(3600);    // until every shard has written

  SchedulerLimits limits;
};

// InvalidArgument naming the first option that is out of its range.
Status validate(const SchedulerOptions& options);

}  // namespace starling
