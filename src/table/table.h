// A table maps a key to one row: the weights, then the optimizer's state, then statistics.
//
// Reads (locate, gather, pool, get, scan, export) change nothing. Every other call is one numbered
// operation. Batches may be empty, in any order and have equal keys; any uint64 is a key (of a
// range table: any of its range). Uses: base. Threads: shard-local. One shard thread owns a table;
// nobody else touches it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "table/bucket_index.h"
#include "table/kernels.h"
#include "table/options.h"
#include "table/pooling.h"
#include "table/rows.h"
#include "table/snapshot.h"

namespace starling {

// Where the rows of a list of keys were found. Used later with the same keys: each is compared with
// its row again, so a stale hint costs a probe and never a wrong row.
struct RowHints {
  std::vector<RowNumber> rows;  // kNoRow: had no row
  uint64_t generation = 0;  // of the table; unchanged means that keys without a row still have none
};

// Whether a batch may have equal keys. kUnique is a promise that saves merging them; where it is
// broken each of the equal keys takes a step of its own.
enum class KeySet { kAny, kUnique };

// One push. Spans are a loan for the call; shows and clicks may be empty.
struct PushBatch {
  std::span<const Key> keys;
  std::span<const float> gradients;  // (keys, dim)
  std::span<const float> shows;      // (keys)
  std::span<const float> clicks;     // (keys)
  uint64_t step = 0;                 // for schedules, last step and random draws; never goes back
  KeySet key_set = KeySet::kAny;
  const RowHints* hints = nullptr;  // of `keys`, from locate() or resolve()
};

// What one operation did, in keys.
struct OperationCounts {
  uint64_t found = 0;  // had a row
  uint64_t created = 0;
  uint64_t dropped = 0;    // not admitted: counted, their gradient dropped
  uint64_t nonfinite = 0;  // left alone because of a NaN or infinite gradient
  uint64_t evicted = 0;    // to make room
};

// How the keys of calls that came with hints were found.
struct HintCounts {
  uint64_t kept = 0;    // by their hint, without a probe of the index
  uint64_t probed = 0;  // by a probe: the row was created, moved or erased after the hint was made
};

struct TableCounts {
  OperationCounts total;  // of all operations
  uint64_t rows = 0;
  HintCounts lookups;   // of gather and pool; `lookups.probed` is Stat's index_probes
  HintCounts pushes;    // of resolve, push and apply
  uint64_t erased = 0;  // by erase, clear and drop_bucket
  std::array<uint64_t, kEvictionReasons> evicted{};
};

// Whole rows of n keys, one after the other.
struct RowBatch {
  std::vector<float> weights;  // (n, dim)
  std::vector<float> state;    // (n, state_floats)
  std::vector<RowStatistics> statistics;
  std::vector<uint8_t> found;  // (n); set() ignores it
};

// A place between two rows, valid whatever happens to the table: rows that are there all the time
// are seen once.
struct RowCursor {
  uint32_t bucket = 0;
  uint64_t hash = 0;  // the next row's mixed hash is at least this
  bool done() const { return bucket == kBuckets; }
};

class Table {
 public:
  // InvalidArgument when an option is out of range or contradicts another; the message names it.
  static StatusOr<std::unique_ptr<Table>> make(const TableOptions& options);
  ~Table();

  const TableOptions& options() const { return options_; }
  size_t dim() const { return layout_.dim; }
  size_t state_floats() const { return layout_.state_floats; }
  const RowLayout& layout() const { return layout_; }
  uint64_t rows() const { return live_rows_; }
  uint64_t operation() const { return operation_; }  // the number of the newest operation
  uint64_t generation() const {
    return generation_;
  }  // changes when a row is created, erased or moved
  TableCounts counts() const;
  // All memory that the table holds, within 5 % of what the process uses for it.
  size_t memory_bytes() const;
  size_t index_bytes() const { return index_->bytes(); }  // of it, the index

  // -- Reads. InvalidArgument: a key outside the range of a range table, or spans that do not fit
  // the keys. --
  Status locate(std::span<const Key> keys, RowHints& hints) const;
  // Copies the weights of `keys` to out (keys, dim). A missing key reads as its first value, one
  // that is not admitted as the configured default. `missing` is set to how many keys had no row.
  Status gather(std::span<const Key> keys, const RowHints* hints, std::span<float> out,
                uint64_t* missing = nullptr) const;
  // Gathers and pools into out (layout.outputs(pooling), dim).
  Status pool(std::span<const Key> keys, const RowHints* hints, const SegmentLayout& segments,
              Pooling pooling, std::span<float> out) const;
  Status get(std::span<const Key> keys, RowBatch& out) const;

  // -- Operations. InvalidArgument as above or for a refused gradient; ResourceExhausted: no room
  // for more rows.
  //    Nothing was changed then. --
  // Counts, admits, creates and touches; with `hints`, says where the rows are; with `out`, gathers
  // in the same pass. Gradients are ignored.
  StatusOr<OperationCounts> resolve(const PushBatch& batch, RowHints* hints,
                                    std::span<float> out = {});
  // resolve, then one optimizer step per key, in one pass over the rows.
  StatusOr<OperationCounts> push(const PushBatch& batch);
  // One optimizer step per key that has a row; creates, counts and admits nothing.
  StatusOr<OperationCounts> apply(const PushBatch& batch);
  // Writes whole rows, creating them whatever the admission says.
  Status set(std::span<const Key> keys, const RowBatch& values);
  // How many rows there were.
  StatusOr<uint64_t> erase(std::span<const Key> keys);
  // All rows and the admission state go.
  void clear();
  // Makes memory present that the next rows will need, at most one huge page; false when enough is.
  // Every operation that creates rows does so once, ahead of need, so that none waits for two
  // pages. An owner that calls it while it has nothing else to do keeps all of them from waiting.
  bool prepare();
  // The same for an owner that fills the table: rows to come lie in `chunk`, row_chunk_bytes() of
  // memory that any thread may have made present. One at a time.
  void stock_rows(Pages chunk) { slabs_->stock(std::move(chunk)); }
  bool is_stocked() const { return slabs_->is_stocked(); }
  size_t row_chunk_bytes() const { return slabs_->chunk_bytes(); }

  // -- Iteration --
  // Calls visit(key) for up to `rows_max` rows and moves the cursor past them.
  void scan(RowCursor& cursor, size_t rows_max, const std::function<void(Key)>& visit) const;
  size_t rows_in(BucketId bucket) const { return index_->rows_in(value(bucket)); }
  std::vector<Key> keys_in(BucketId bucket) const;  // ascending

  // -- Buckets. The bytes are those of docs/format/table.md: rows ascending by key, then the
  // admission state. --
  std::vector<std::byte> export_bucket(BucketId bucket, const RowFilter& filter = {}) const;
  // Adds the rows (replacing equal keys) and replaces the admission state. DataLoss: not such
  // bytes, or of other options; nothing was changed then.
  Status import_bucket(std::span<const std::byte> image);
  void drop_bucket(BucketId bucket);

  // -- Eviction --
  // `sink` gets every evicted row until it is replaced; null: the table's own bounded list.
  void set_eviction_sink(EvictionSink* sink) { sink_ = sink != nullptr ? sink : &evicted_; }
  const EvictedList& evicted() const { return evicted_; }
  // Decays and evicts in the buckets [first, first + count). One call per bucket range keeps each
  // short; compact() afterwards gives memory back. Returns how many rows went.
  uint64_t shrink(uint64_t step, uint32_t first = 0, uint32_t count = kBuckets);
  // Moves up to `rows_max` rows into holes and gives the memory behind them back. Does nothing
  // during a snapshot.
  void compact(size_t rows_max = SIZE_MAX);
  // What publishing a save changes in the rows (save_changes) of the buckets [first, first +
  // count). One call per bucket range keeps each short.
  void finish_save(SaveFilter filter, uint32_t first = 0, uint32_t count = kBuckets);

  // -- Snapshot: every row as it is now, bucket by bucket, each bucket once, while operations go
  // on. -- FailedPrecondition: one is under way.
  Status begin_snapshot(const SnapshotOptions& options, SnapshotSink& sink);
  // Hands out buckets until about `rows` rows are out. False when all buckets are.
  bool advance_snapshot(size_t rows);
  // Ends it, finished or not. Rows that were erased meanwhile are free from now on. What it gives
  // back is memory alone, to be dropped where time does not matter; null when there was none.
  std::unique_ptr<Snapshot> end_snapshot();
  bool in_snapshot() const { return snapshot_ != nullptr; }
  // Memory that copies of rows hold because of it.
  size_t snapshot_copy_bytes() const { return snapshot_ == nullptr ? 0 : snapshot_->copy_bytes(); }

  // -- Changes --
  // Calls changed(key) for every row that a push, set or import touched after operation n, and
  // deleted(key) for every key without a row that was deleted after it. Shrink's decay and
  // finish_save() are operations to repeat, not touches. OutOfRange: the record does not reach back
  // to n; take everything.
  Status changed_since(uint64_t n, const std::function<void(Key)>& changed,
                       const std::function<void(Key)>& deleted) const;
  // Every key whose row was deleted after operation n, oldest first, those that have a row again
  // included. OutOfRange as above.
  StatusOr<std::vector<Key>> deleted_since(uint64_t n) const;
  // The newest operation that may have changed rows without touching them: shrink() or
  // finish_save(). Changes since an older one are more than changed_since() says.
  uint64_t last_sweep() const { return last_sweep_; }

 private:
  struct Part {  // a run of weights with a rule
    size_t first = 0;
    size_t count = 0;
    size_t state = 0;  // first state float
    RuleSettings rule;
  };
  struct Walk;  // one pass over a batch
  struct StepBlock;
  static constexpr size_t kBlock = 2 * kProbeBlock;

  explicit Table(const TableOptions& options);

  // table.cc
  Status check_keys(std::span<const Key> keys) const;
  uint32_t bucket_of(Key key, uint64_t hash) const { return options_.placement.bucket(key, hash); }
  RowNumber find(Key key) const;
  ProbeView probe_view(size_t touched_bytes) const;
  ProbePass probe_pass(std::span<const Key> keys, const RowHints* hints) const;
  // Finds the rows of the keys a block at a time and calls visit(first, data, rows) for each; data
  // is null where a key is late. Returns how many are.
  template <class Visit>
  size_t find_blocks(const ProbeView& view, ProbePass& pass, Visit&& visit) const;
  // Looks for the first `late` keys of late_ once more, in all slots that fit: late_rows_ tells
  // their rows. Counts what hints were good for.
  void find_late(const ProbeView& view, std::span<const Key> keys, const RowHints* hints,
                 size_t late, HintCounts& counts) const;
  void first_weights(Key key, bool with_rest, std::span<float> out) const;
  void missing_weights(Key key, std::span<float> out) const;
  void read_weights(const std::byte* row, std::span<float> out) const;
  void write_weights(std::byte* row, std::span<const float> weights) const;
  void begin_operation();
  RowNumber create(Key key, uint64_t hash, uint32_t bucket);
  // Records the deletion, takes the row out of the index and discards it.
  void remove(uint32_t bucket, uint64_t hash, RowNumber row);
  // Frees a row that is not in the index any more: at once, or when the snapshot ends.
  void discard(uint32_t bucket, RowNumber row);
  void empty_bucket(uint32_t bucket);
  void forget(Key key);
  void restamp();
  uint32_t stamp() const { return static_cast<uint32_t>(operation_ - stamp_base_); }

  // table_push.cc
  Status check_batch(const PushBatch& batch, bool with_gradients) const;
  StatusOr<OperationCounts> walk_any(const PushBatch& batch, Walk& walk);
  StatusOr<OperationCounts> walk(Walk& walk);
  // The keys that have a row at the first slot that fits, then the other keys that have one.
  size_t walk_found(Walk& walk, const ProbeView& view);
  size_t walk_blocks(Walk& walk, const ProbeView& view, ProbePass& pass);
  void walk_late(Walk& walk, size_t late);
  bool is_finite(const Walk& walk, size_t i) const;
  void walk_missing(Walk& walk);
  RowNumber admit(Walk& walk, size_t i, uint64_t hash, uint32_t bucket);
  void touch(const Walk& walk, size_t i, std::byte* data, RowNumber row) {
    if (snapshot_ != nullptr && stamp_of(data) <= snapshot_->stamp) [[unlikely]] {
      const Key key = key_of(data);
      preserve(bucket_of(key, mixed_hash(key)), row);
    }
    set_stamp(data, stamp());
    if (layout_.statistics != layout_.payload_end) touch_statistics(walk, i, data);
  }
  void touch_statistics(const Walk& walk, size_t i, std::byte* row) const;
  void create_rest(std::byte* row) const;
  void step_block(const Walk& walk, StepBlock& block);
  void step_rest(float rate, const float* scales, StepBlock& block);

  // table_bucket.cc
  bool passes(const RowFilter& filter, const std::byte* row) const;
  Status check_image(std::span<const std::byte> image) const;
  // The key's row, created where it is missing, ready to be overwritten.
  std::byte* row_to_set(Key key);
  std::byte* new_row(uint32_t bucket, Key key);

  // table_shrink.cc
  void evict(uint32_t bucket, uint64_t hash, RowNumber row, EvictionReason reason);
  // Evicts until the bucket has room for one more; how many rows went.
  uint64_t make_room(uint32_t bucket);
  uint64_t rank_of(const std::byte* row) const;
  void offer_victim(uint32_t bucket, const std::byte* row);

  // table_snapshot.cc
  void preserve(uint32_t bucket, RowNumber row);
  void preserve_admission(uint32_t bucket);
  void emit_bucket(uint32_t bucket);

  const TableOptions options_;
  const Kernels& kernels_;
  const uint64_t stream_;
  RowLayout layout_;
  std::vector<Part> parts_;
  bool clips_ = false;
  Initializer initializer_;
  std::unique_ptr<Admission> admission_;
  bool missing_reads_zero_ = false;

  // Both made once the layout is known.
  std::optional<RowSlabs> slabs_;
  std::optional<BucketIndex> index_;
  uint64_t live_rows_ = 0;
  uint64_t operation_ = 0;
  uint64_t stamp_base_ = 0;  // a row's stamp is its operation minus this
  uint64_t generation_ = 1;

  struct Deletion {
    uint64_t operation;
    Key key;
  };
  std::deque<Deletion> deletions_;
  uint64_t changes_floor_ = 0;  // changed_since(n) is exact for n >= this
  uint64_t last_sweep_ = 0;

  TableCounts counts_;
  EvictedList evicted_;
  EvictionSink* sink_;
  std::vector<VictimQueue> victims_;  // per bucket, where a capacity is set

  std::unique_ptr<Snapshot> snapshot_;

  // Scratch of one call.
  KeyMerger merger_;
  std::vector<uint32_t> missing_;
  mutable std::vector<uint32_t> late_;
  mutable std::vector<RowNumber> late_rows_;
  std::array<float*, kBlock> rest_weights_;
  std::vector<float> scratch_;  // (2 kBlock + 1, dim): gradients, weights, one gradient with decay
  mutable std::vector<float> pooled_rows_;

  // Told by counts(), seen by no operation.
  mutable HintCounts lookup_hints_;
};

}  // namespace starling
