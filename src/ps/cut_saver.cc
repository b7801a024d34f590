#include "ps/cut_saver.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "ps/cut_restore.h"
#include "wire/enums.h"

namespace starling {
namespace {

constexpr uint32_t kCommitWithinDefault = 3600;  // seconds
constexpr size_t kRemembered = 16;               // committed cuts
constexpr Duration kRetry = milliseconds(1);     // the writer is behind
constexpr Duration kBreath = milliseconds(4);    // as long as training may wait for it in one turn
constexpr size_t kSweepRows = 65536;             // at once
constexpr size_t kCopyBytesMin = size_t{64} << 20;

SaveFilter filter_of(v1::SaveFilter filter) {
  switch (filter) {
    case v1::SAVE_FILTER_DELTA:
      return SaveFilter::kDelta;
    case v1::SAVE_FILTER_BASE:
      return SaveFilter::kBase;
    case v1::SAVE_FILTER_DAILY:
      return SaveFilter::kDaily;
    default:
      return SaveFilter::kAll;
  }
}

}  // namespace

struct CutSaver::Save {
  v1::SaveOption option;
  Deadline deadline;
  std::vector<uint8_t> owns;        // buckets, at the cut
  std::vector<std::string> tables;  // those before `current` are out
  size_t current = 0;
  std::map<std::string, std::unique_ptr<Sink>> sinks;
  std::unique_ptr<CutFiles> files;
  ckpt::ShardState state;
  Base base;  // what this cut is for increments
  uint64_t rows_total = 0;
  size_t held_bytes = 0;  // by the tables, at the cut
  size_t copy_bytes_max = 0;
  bool in_turn = false;  // inside advance()
  bool rows_out = false;
  Status failed;
};

// Passes the images of one table on to the writing thread.
class CutSaver::Sink final : public SnapshotSink {
 public:
  Sink(CutSaver& saver, Save& save, std::string table)
      : saver_(saver), save_(save), table_(std::move(table)) {}

  void bucket(BucketRows rows) override {
    if (save_.owns[value(rows.bucket)] == 0 || !save_.failed.ok()) return;
    const bool is_full = save_.option.mode() == v1::SAVE_MODE_FULL;
    if (is_full && rows.size() == 0 && rows.admission.empty()) return;
    CutFiles::Item item;
    item.kind = is_increment ? CutRecordKind::kChanges : CutRecordKind::kBucket;
    item.number = value(rows.bucket);
    item.table = table_;
    item.is_ahead = !save_.in_turn;
    item.rows = std::move(rows);
    save_.failed =
        save_.files->put(std::move(item), Deadline::in(saver_.clock_, saver_.options_.stall_max));
  }

  bool is_increment = false;

 private:
  CutSaver& saver_;
  Save& save_;
  const std::string table_;
};

CutSaver::CutSaver(Shard& shard, FileSystem& fs, const Clock& clock, CutSaverOptions options)
    : shard_(shard),
      fs_(fs),
      clock_(clock),
      options_(options),
      pool_({.cached_bytes_max = options.queue_bytes_max}) {}

CutSaver::~CutSaver() {
  if (save_ != nullptr) drop_rows();
}

Status CutSaver::check(const v1::SaveOption& option, std::vector<std::string>& tables,
                       std::vector<std::string>& variables) const {
  if (option.cut_id() == 0) return invalid_argument("Ps.Save: no cut id");
  if (option.path().empty())
    return invalid_argument("Ps.Save: cut {} has no path", option.cut_id());
  STARLING_RETURN_IF_ERROR(check_enum(option.mode(), "Ps.Save: mode"));
  STARLING_RETURN_IF_ERROR(check_enum(option.filter(), "Ps.Save: filter"));
  if (option.mode() == v1::SAVE_MODE_INCREMENTAL && option.filter() != v1::SAVE_FILTER_ALL) {
    return invalid_argument("Ps.Save: an incremental cut takes all rows, not those of {}",
                            v1::SaveFilter_Name(option.filter()));
  }
  if (shard_.routes().empty()) return failed_precondition("Ps.Save: no map has come yet");
  const ShardSchema& schema = shard_.schema();
  const std::set<std::string> names(option.names().begin(), option.names().end());
  for (const auto& [name, proto] : schema.tables()) {
    if (names.empty() || names.contains(name)) tables.push_back(name);
  }
  for (const auto& [name, proto] : schema.variables()) {
    if (names.empty() || names.contains(name)) variables.push_back(name);
  }
  for (const std::string& name : names) {
    if (!schema.tables().contains(name) && !schema.variables().contains(name)) {
      return invalid_argument("Ps.Save: no table or variable named {}", name);
    }
  }
  if (!option.has_clock()) return absl::OkStatus();
  for (const auto& [rank, state] : shard_.clocks().all()) {
    if (state.clock >= option.clock()) continue;
    return failed_precondition("Ps.Save: rank {} has finished {} steps here, cut {} lies at {}",
                               value(rank), state.clock, option.cut_id(), option.clock());
  }
  return absl::OkStatus();
}

Status CutSaver::begin(const v1::SaveOption& option) {
  for (const Committed& done : committed_) {
    if (done.cut_id == option.cut_id()) return absl::OkStatus();
  }
  if (save_ != nullptr && save_->option.cut_id() == option.cut_id()) return absl::OkStatus();
  if (save_ != nullptr) {
    return failed_precondition("Ps.Save: cut {} is being saved", save_->option.cut_id());
  }
  // The cut before must have had its effect.
  sweep(SIZE_MAX);
  auto save = std::make_unique<Save>();
  std::vector<std::string> variables;
  STARLING_RETURN_IF_ERROR(check(option, save->tables, variables));
  save->option = option;
  const uint32_t within =
      option.commit_within_s() == 0 ? kCommitWithinDefault : option.commit_within_s();
  save->deadline = Deadline::in(clock_, seconds(within));
  save->owns.resize(kBuckets);
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    save->owns[bucket] = shard_.owns_bucket(bucket) ? 1 : 0;
  }
  for (const std::string& name : save->tables) {
    save->held_bytes += shard_.table(name)->memory_bytes();
  }
  save->copy_bytes_max = copy_bound(save->held_bytes);
  const ShardOptions& shard = shard_.options();
  save->files = std::make_unique<CutFiles>(
      fs_, CutFilesOptions{.path = option.path(),
                           .cut_id = option.cut_id(),
                           .node = shard.node,
                           .lane = shard.lane,
                           .incarnation = shard.incarnation,
                           .queue_bytes_max = options_.queue_bytes_max,
                           .file_bytes = options_.file_bytes,
                           .has_stock = save->copy_bytes_max > kCopyBytesMin});
  save_ = std::move(save);
  extra_bytes_max_ = 0;
  save_->base.cut_id = option.cut_id();
  save_->base.map_version = shard_.routes().version();
  const Base* base = nullptr;
  for (const Base& one : bases_) {
    const bool is_it = option.mode() == v1::SAVE_MODE_INCREMENTAL &&
                       one.cut_id == option.base_cut() &&
                       one.map_version == shard_.routes().version();
    if (is_it) base = &one;
  }
  for (const std::string& name : save_->tables) {
    if (Status status = begin_table(*save_, name, base); !status.ok()) {
      cancel(option.cut_id());
      return status;
    }
  }
  put_variables(*save_, variables);
  shard_.save_state(save_->state);
  if (save_->tables.empty()) next_table();
  note_memory();
  return absl::OkStatus();
}

// What training touches while the rows go out at the disk's pace must fit: a third of all rows,
// when every row is as likely as any other.
size_t CutSaver::copy_bound(size_t held) const {
  if (options_.copy_bytes_max != 0) return options_.copy_bytes_max;
  size_t bound = held / 2;
  if (const size_t limit = shard_.options().memory_bytes_max; limit > 0) {
    bound = std::min(bound, (limit - std::min(limit, shard_.memory_bytes())) / 2);
  }
  return std::max(bound, kCopyBytesMin);
}

Status CutSaver::begin_table(Save& save, const std::string& name, const Base* base) {
  Table& table = *shard_.table(name);
  uint64_t since = 0;
  if (base != nullptr) {
    const auto at = base->operations.find(name);
    // A sweep changed rows that nobody touched since: all of them are taken.
    if (at != base->operations.end() && table.last_sweep() <= at->second) since = at->second;
  }
  auto sink = std::make_unique<Sink>(*this, save, name);
  SnapshotOptions options;
  options.filter.save = filter_of(save.option.filter());
  options.filter.since = since;
  // To each table by its size.
  options.copy_bytes_max = static_cast<size_t>(static_cast<double>(save.copy_bytes_max) *
                                               static_cast<double>(table.memory_bytes()) /
                                               static_cast<double>(save.held_bytes));
  options.chunks = save.files.get();
  options.pool = &pool_;
  Status status = table.begin_snapshot(options, *sink);
  if (status.code() == StatusCode::kOutOfRange) {
    since = options.filter.since = 0;
    status = table.begin_snapshot(options, *sink);
  }
  STARLING_RETURN_IF_ERROR(status);
  sink->is_increment = since != 0;
  save.sinks.emplace(name, std::move(sink));
  save.rows_total += table.rows();
  save.base.operations[name] = table.operation();
  return since == 0 ? absl::OkStatus() : put_deletions(save, table, since);
}

Status CutSaver::put_deletions(Save& save, const Table& table, uint64_t since) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<Key> keys, table.deleted_since(since));
  if (keys.empty()) return absl::OkStatus();
  CutFiles::Item item;
  item.kind = CutRecordKind::kDeleted;
  item.table = table.options().name;
  item.bytes.resize(keys.size() * sizeof(Key));
  std::memcpy(item.bytes.data(), keys.data(), item.bytes.size());
  return save.files->put(std::move(item), Deadline::in(clock_, options_.stall_max));
}

void CutSaver::put_variables(Save& save, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    DenseVariable& variable = *shard_.variable(name);
    for (const auto& [number, table] : variable.parts()) {
      DensePart part{.variable = name,
                     .begin = table->begin(),
                     .end = table->begin() + table->size(),
                     .version = variable.version(),
                     .updates = variable.updates()};
      part.weights.assign(table->weights().begin(), table->weights().end());
      part.state.assign(table->state().begin(), table->state().end());
      CutFiles::Item item;
      item.kind = CutRecordKind::kPart;
      item.number = number;
      item.part = std::move(part);
      if (!save.failed.ok()) return;
      save.failed = save.files->put(std::move(item), Deadline::in(clock_, options_.stall_max));
    }
  }
}

bool CutSaver::has_more() const {
  return sweep_.has_value() || (save_ != nullptr && !save_->rows_out);
}

void CutSaver::sweep(size_t rows) {
  for (size_t done = 0; sweep_.has_value() && done < rows;) {
    if (Table* table = shard_.table(sweep_->tables.back()); table != nullptr) {
      const uint32_t first = sweep_->next;
      for (; sweep_->next < kBuckets && done < rows; ++sweep_->next) {
        done += table->rows_in(BucketId{static_cast<uint16_t>(sweep_->next)});
      }
      table->finish_save(sweep_->filter, first, sweep_->next - first);
      if (sweep_->next < kBuckets) return;
    }
    sweep_->next = 0;
    sweep_->tables.pop_back();
    if (sweep_->tables.empty()) sweep_.reset();
  }
}

bool CutSaver::advance(bool is_idle) {
  std::erase_if(retired_, [](const auto& files) { return files->has_ended(); });
  const TimePoint now = clock_.now();
  if (sweep_.has_value()) {
    if (!is_idle && now < next_slice_) return false;
    sweep(kSweepRows);
    next_slice_ = now + (clock_.now() - now) * options_.busy_share;
    return has_more();
  }
  if (save_ == nullptr) return false;
  if (save_->deadline.passed(now)) {
    cancel(save_->option.cut_id());
    return false;
  }
  if (save_->rows_out) return false;
  note_memory();
  if (save_->failed.ok()) save_->failed = save_->files->status();
  if (!save_->failed.ok()) {
    drop_rows();
    return false;
  }
  size_t copies = 0;
  for (const std::string& name : save_->tables) {
    copies += shard_.table(name)->snapshot_copy_bytes();
  }
  const size_t eighth = std::max<size_t>(save_->copy_bytes_max / 8, 1);
  if (!is_idle && copies <= 6 * eighth && now < next_slice_) return false;
  // Before the bound is met training waits many times for a moment, instead of once for long.
  const Deadline breath =
      copies > 7 * eighth ? Deadline::in(clock_, kBreath) : Deadline(TimePoint::min());
  if (!save_->files->wait_for_room(breath)) {
    next_slice_ = now + kRetry;
    return false;
  }
  Table& table = *shard_.table(save_->tables[save_->current]);
  save_->in_turn = true;
  const size_t rows = std::max<size_t>(1, options_.slice_bytes / table.layout().stride);
  const bool is_more = table.advance_snapshot(rows);
  save_->in_turn = false;
  if (!is_more) {
    save_->files->dispose(table.end_snapshot());
    next_table();
  }
  const TimePoint end = clock_.now();
  // The more copies there are, the larger the part of the time that slices take, so that the bound
  // is not met.
  const size_t hurry = std::min<size_t>(copies / (2 * eighth), 4);
  next_slice_ = end + (end - now) * (std::max(options_.busy_share >> hurry, 2U) - 1);
  return has_more();
}

TimePoint CutSaver::next_slice() const {
  if (sweep_.has_value()) return next_slice_;
  if (save_ == nullptr) return retired_.empty() ? TimePoint::max() : clock_.now() + kRetry;
  return save_->rows_out ? save_->deadline.at() : next_slice_;
}

void CutSaver::next_table() {
  if (!save_->tables.empty()) ++save_->current;
  if (save_->current < save_->tables.size()) return;
  save_->rows_out = true;
  save_->files->finish(std::move(save_->state));
}

// No table is held any longer; what is out stays with the writing thread.
void CutSaver::drop_rows() {
  for (const auto& [name, sink] : save_->sinks) {
    if (Table* table = shard_.table(name); table != nullptr) {
      save_->files->dispose(table->end_snapshot());
    }
  }
  save_->rows_out = true;
}

void CutSaver::retire() {
  retired_.push_back(std::move(save_->files));
  save_.reset();
}

StatusOr<v1::SaveReply> CutSaver::progress(uint64_t cut_id) const {
  for (const Committed& done : committed_) {
    if (done.cut_id == cut_id) return done.reply;
  }
  if (save_ == nullptr || save_->option.cut_id() != cut_id) {
    return not_found("Ps.Save: cut {} is not being saved here", cut_id);
  }
  STARLING_RETURN_IF_ERROR(save_->failed);
  const CutFiles::Progress progress = save_->files->progress();
  STARLING_RETURN_IF_ERROR(progress.status);
  v1::SaveReply reply;
  reply.set_done(progress.is_done);
  reply.set_rows_done(progress.rows);
  reply.set_rows_total(progress.is_done ? progress.rows : save_->rows_total);
  reply.set_bytes_done(progress.bytes);
  reply.set_copied_bytes(extra_bytes_max_);
  for (const ckpt::File& file : progress.files) {
    v1::SavedFile* out = reply.add_files();
    out->set_name(file.name());
    out->set_bytes(file.bytes());
    out->set_xxh3(file.xxh3());
    out->set_bucket_begin(file.bucket_begin());
    out->set_bucket_end(file.bucket_end());
  }
  return reply;
}

Status CutSaver::commit(uint64_t cut_id) {
  STARLING_ASSIGN_OR_RETURN(const v1::SaveReply reply, progress(cut_id));
  if (save_ == nullptr || save_->option.cut_id() != cut_id) return absl::OkStatus();
  if (!reply.done()) return failed_precondition("Ps.Save: cut {} is not all written", cut_id);
  const v1::SaveFilter filter = save_->option.filter();
  if (filter != v1::SAVE_FILTER_ALL) {
    if (!save_->tables.empty()) {
      sweep_ = {.filter = filter_of(filter), .tables = save_->tables, .next = 0};
    }
    sweep(kSweepRows);
  } else {
    bases_.push_back(std::move(save_->base));
    if (bases_.size() > kRemembered) bases_.pop_front();
  }
  committed_.push_back({cut_id, reply});
  if (committed_.size() > kRemembered) committed_.pop_front();
  retire();
  return absl::OkStatus();
}

void CutSaver::cancel(uint64_t cut_id) {
  if (save_ == nullptr || save_->option.cut_id() != cut_id) return;
  drop_rows();
  save_->files->cancel();
  retire();
}

size_t CutSaver::extra_bytes() const {
  if (save_ == nullptr || save_->files == nullptr) return 0;
  size_t bytes = save_->files->queued_bytes() + save_->files->stock_bytes();
  for (const auto& [name, sink] : save_->sinks) {
    bytes += shard_.table(name)->snapshot_copy_bytes();
  }
  return bytes;
}

void CutSaver::note_memory() { extra_bytes_max_ = std::max(extra_bytes_max_, extra_bytes()); }

}  // namespace starling
