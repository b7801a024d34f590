// Dataset is one dataset of a hub at work: a thread takes work items from the scheduler, reads them
// into batches and feeds these to the shards; the dealer leases them; a timer keeps the scheduler
// and the shards informed.
//
// Uses: base, wire, net, store, data, clients of scheduler and ps. Threads: any; its reading thread
// is named hub-read, its timer runs on the hub's control lane.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "data/batch.h"
#include "data/format.h"
#include "hub/client.h"
#include "hub/cutter.h"
#include "hub/dealer.h"
#include "hub/global_shuffle.h"
#include "hub/loaded.h"
#include "hub/position.h"
#include "hub/reader.h"
#include "hub/source.h"
#include "net/lane.h"
#include "ps/client.h"
#include "scheduler/client.h"
#include "store/file_system.h"

namespace starling {

// What a dataset works with; all of it outlives the dataset.
struct DatasetWorld {
  SchedulerClient* scheduler = nullptr;
  PsClient* ps = nullptr;
  HubClient* hubs = nullptr;  // the others, for the global shuffle
  uint32_t node = 0;          // this hub
  LoadedSet* loaded = nullptr;
  FileSystem* files = nullptr;
  const Clock* clock = nullptr;
  Metrics* metrics = nullptr;
  Log log;
  std::shared_ptr<Lane> lane;  // the control lane
};

struct DatasetOptions {
  v1::StartSampleOption start;
  std::vector<BatchTable> tables;
  uint32_t threads = 1;         // of parsing, where StartSample names none
  size_t memory_bytes_max = 0;  // of samples and batches; 0: no limit
  uint32_t window_max = 512;    // told to shards: of all datasets of the hub
  uint32_t hub = 0;             // synchronous: which of ...
  uint32_t hubs = 1;            // ... so many
  uint64_t item_bytes = 64 << 20;
  uint64_t generation = 1;  // of the job
  std::vector<v1::RankSeats> seats;
};

class Dataset : public std::enable_shared_from_this<Dataset> {
 public:
  // InvalidArgument: an option that is not one; the rest is found out while it reads.
  static StatusOr<std::shared_ptr<Dataset>> start(const DatasetWorld& world,
                                                  DatasetOptions options);
  ~Dataset();

  const v1::StartSampleOption& option() const { return options_.start; }
  // Hub.StartSample and Hub.ReadSample.
  Message describe() const;
  Message read(const Message& request);
  // Hub.Exchange, of the global shuffle.
  Message exchange(const Message& request);
  // Hubs that have sent samples, and how many these were.
  std::pair<size_t, uint64_t> exchanged() const;

  bool trains() const { return options_.start.purpose() == v1::PURPOSE_TRAIN; }
  // What the scheduler tells; on the control lane.
  void on_event(const v1::Event& event);
  // Watermarks of the whole queue, once for each drain; on the control lane.
  struct DrainedAt {
    std::vector<v1::Watermark> marks;
    // Above the clock that was asked for: that has been passed. None: there are no clocks.
    std::optional<uint64_t> clock;
  };
  using Drained = Function<void(DrainedAt)>;
  void drain(std::optional<uint64_t> clock, Drained done);
  void resume();
  // For the manifest of a cut at `clock`.
  hubs::DatasetPosition position(std::optional<uint64_t> clock) const;

  v1::DatasetState state() const;
  v1::DatasetCounts counts() const;
  size_t open_batches() const;
  size_t fed_batches() const;
  uint64_t clock_dealt() const;
  // Of samples and batches, now and at most so far.
  size_t memory_bytes() const;
  size_t memory_bytes_peak() const;
  // Why it cannot go on.
  Status failure() const;

  // The reading thread ends soon.
  void stop();
  void join() {
    thread_.join();
    preloader_.join();
  }

 private:
  struct Fed {  // a batch's feeds, kept until it is done
    std::shared_ptr<const std::vector<ShardMessage>> messages;
    size_t bytes = 0;
    bool is_out = false;  // on its way
  };

  Dataset(const DatasetWorld& world, DatasetOptions options, hubs::DatasetPosition from);

  // dataset_read.cc: the reading thread.
  void run();
  Status prepare();
  BadLinesOptions bad_lines_options() const;
  Status read_all();
  Status fill_queue(const std::string& queue, uint32_t epoch,
                    const std::vector<v1::WorkItem>& items);
  Status read_epoch(uint32_t epoch);
  StatusOr<bool> is_epoch_done(uint32_t epoch);
  Status read_item(uint32_t epoch, const v1::WorkLease& lease);
  Status give_batch(const ItemName& name, std::span<const SampleRef> samples, uint64_t number);
  // Blocks until there is room; false: the item is lost, or the dataset stops.
  StatusOr<bool> wait_for_room(const ItemName& name);
  // A call to the scheduler that ended so may be made again.
  static bool may_pass(const Status& status) {
    return status.code() == StatusCode::kUnavailable ||
           status.code() == StatusCode::kDeadlineExceeded;
  }
  bool pause(Duration time);
  // What the reading thread holds, loaded samples included.
  void note_memory(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  Deadline soon() const;
  // False: the item is lost, or the dataset stops.
  StatusOr<bool> deal_stream(const ItemName& name, const v1::WorkLease& lease, BatchCutter& cutter,
                             ItemCounts& counts);
  StatusOr<bool> deal(const ItemName& name, uint64_t done_below, BatchCutter& cutter,
                      ItemCounts& counts);
  Status finish_item(const ItemName& name, const ItemCounts& counts, uint64_t batches);
  std::vector<v1::WorkItem> order_of(uint32_t epoch) const;
  uint32_t first_epoch() const;
  // Batches of the epochs that are in no queue of this generation of the job.
  uint64_t steps_before_queues() const;
  Status count_steps();

  // dataset_memory.cc: items that stay loaded.
  StatusOr<bool> deal_loaded(const ItemName& name, const v1::WorkLease& lease, BatchCutter& cutter,
                             ItemCounts& counts);
  StatusOr<const LoadedItem*> load(const v1::WorkItem& work);
  StatusOr<LoadedItem> load_whole(const v1::WorkItem& work, ParsePool& pool, BadLines& bad,
                                  BadLog& log);
  // The preloading thread: files of the next dataset.
  void preload();
  Status preload_files();
  StatusOr<SampleBlocks> merged(const SampleBlocks& blocks) const;
  StatusOr<SampleBlocks> with_slots_shuffled(const ItemName& name,
                                             const SampleBlocks& blocks) const;

  // dataset_global.cc: samples that all hubs share, each holding some files.
  std::string load_queue() const { return options_.start.dataset() + "/load"; }
  std::string share_key(const std::string& what, uint32_t file) const;
  Status load_shares();
  // False: there was no file to be taken now.
  StatusOr<bool> take_share();
  StatusOr<bool> know_counts();
  StatusOr<bool> deal_slice(const ItemName& name, const v1::WorkLease& lease, BatchCutter& cutter,
                            ItemCounts& counts);
  StatusOr<bool> gather(const ItemName& name);
  void ask_for(const ItemName& name);
  void send_slice(uint32_t to, const ItemName& name, uint64_t at);
  void renew_shares();
  void lose_shares(const std::vector<uint32_t>& files);

  // dataset_order.cc: the order of synchronous jobs, which hubs share through the scheduler's keys.
  Status begin_epoch(uint32_t epoch);
  StatusOr<uint64_t> first_clock_of(uint32_t epoch);
  // While a cut drains behind the end of the epoch: where the next one begins.
  Status agree_on_next(uint32_t epoch);
  // Waits for the end of the item before.
  StatusOr<uint64_t> find_base(const ItemName& name);
  Status find_epoch_end(uint32_t epoch);
  std::string key_of(uint32_t epoch, const std::string& what) const;
  StatusOr<std::optional<uint64_t>> get_number(const std::string& key);
  Status put_number(const std::string& key, uint64_t number);
  // The number that whoever came first has put.
  StatusOr<uint64_t> put_first(const std::string& key, uint64_t number);

  // The control lane.
  void arm();
  void tend();
  void tend_soon();
  void renew();
  void acknowledge();
  void send_marks();
  void check_drained();
  // A newer map: what is cut by an older one is given back to the queue and read anew.
  void cut_anew();
  void send_feeds() ABSL_LOCKS_EXCLUDED(mutex_);
  void send_feed(const BatchId& id);
  void fed(const BatchId& id, const std::vector<v1::Watermark>& marks, const Status& status);
  void drop_done() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DatasetWorld world_;
  const DatasetOptions options_;
  const hubs::DatasetPosition from_;  // of the cut that the job resumes from
  const uint32_t epochs_;
  const bool has_clocks_;  // staleness is bounded: cuts lie at a clock
  const bool is_synchronous_;
  const bool is_memory_;
  const bool is_global_;

  // Set by prepare(), before is_ready_; the reading thread's.
  SourceOptions source_;
  std::shared_ptr<const Format> format_;
  std::vector<v1::WorkItem> items_;
  std::unique_ptr<ParsePool> pool_;
  std::unique_ptr<BatchAssembler> assembler_;
  std::unique_ptr<BadLines> bad_lines_;
  std::unique_ptr<BadLog> bad_log_;
  std::vector<v1::WorkItem> shares_;  // of the global shuffle: the files
  std::vector<std::optional<uint64_t>> share_samples_;
  uint64_t shares_skipped_ = 0;  // by rule, of all files
  TimePoint shares_since_{};
  std::map<uint64_t, std::shared_ptr<const LoadedItem>> loaded_;  // by content_of
  std::atomic<size_t> loaded_bytes_{0};
  BufferPool chunks_;
  SampleReader::Limits limits_;
  uint64_t made_ = 0;          // batches
  uint64_t steps_before_ = 0;  // synchronous: batches of the epochs before; else done by the job
  uint64_t base_ = 0;          // synchronous: of the item at hand

  // The control lane's.
  TimerId timer_{};
  bool is_renewing_ = false;
  bool is_acking_ = false;
  bool is_marking_ = false;
  bool is_renewing_shares_ = false;
  TimePoint shares_renewed_{};
  std::set<std::pair<uint32_t, ItemName>> sending_;  // slices, to which hub
  TimePoint renewed_{};
  Duration renew_every_ = seconds(2);
  Drained drained_;
  bool is_checking_ = false;

  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_tend_posted_{false};

  mutable Mutex mutex_;
  CondVar changed_;
  Dealer dealer_ ABSL_GUARDED_BY(mutex_);
  bool is_ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_queue_ ABSL_GUARDED_BY(mutex_) = false;  // the scheduler knows where the dataset stands
  std::map<BatchId, Fed> fed_ ABSL_GUARDED_BY(mutex_);
  size_t fed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t read_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peak_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<ItemName> lost_ ABSL_GUARDED_BY(mutex_);  // what is being read of them ends
  uint64_t content_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<GlobalShuffle> shuffle_ ABSL_GUARDED_BY(mutex_);
  std::set<uint32_t> shares_held_ ABSL_GUARDED_BY(mutex_);
  std::set<uint32_t> received_from_ ABSL_GUARDED_BY(mutex_);
  uint64_t received_ ABSL_GUARDED_BY(mutex_) = 0;     // samples
  uint64_t map_version_ ABSL_GUARDED_BY(mutex_) = 0;  // by which batches are cut

  Histogram& assemble_ns_;
  Histogram& feed_ns_;
  Counter& batches_fed_;
  Counter& bytes_fed_;
  Counter& bytes_leased_;
  Counter& bytes_read_;
  Counter& samples_parsed_;
  Counter& samples_fed_;
  Counter& waits_;  // of the reading thread, for shards and trainers

  Counter& samples_preloaded_;

  Thread thread_;
  Thread preloader_;  // started by thread_
};

}  // namespace starling
