// The reading thread of a dataset: items, samples, batches.
#include <algorithm>
#include <utility>

#include "data/shuffle.h"
#include "hub/dataset.h"
#include "hub/layout.h"
#include "hub/options.h"
#include "hub/rates.h"

namespace starling {
namespace {

constexpr uint64_t kBadLinesMax = 1000;
constexpr Duration kRetry = milliseconds(50);
// One try of a call to the scheduler; calls are repeated until the dataset stops.
constexpr Duration kCallPatience = seconds(5);
// The shuffle of the items of an epoch: no item has this number.
constexpr uint32_t kAllItems = UINT32_MAX;
// Work items of one AddWork.
constexpr int kItemsPerCall = 4096;
constexpr size_t kChunkBytesMin = 64 << 10;
// That the store reads ahead, and the one that is cut.
constexpr size_t kChunksAhead = 5;

ItemStart start_of(const v1::WorkLease& lease) {
  return {.done_below = lease.done_below(),
          .begun_below = Dealer::begun_below(lease.position()),
          .samples_trained = lease.samples_trained(),
          .samples_failed = lease.samples_skipped()};
}

// Slices of a global shuffle have their order already.
uint64_t shuffle_samples_of(const v1::StartSampleOption& option) {
  if (option.kind() != v1::DATASET_KIND_MEMORY) return option.shuffle_samples();
  if (option.memory().global_shuffle()) return 0;
  return option.memory().local_shuffle() ? UINT32_MAX : option.shuffle_samples();
}

}  // namespace

void Dataset::run() {
  const Status status = read_all();
  MutexLock lock(mutex_);
  if (!status.ok() && !is_stopping_) {
    world_.log.error("dataset_failed",
                     {{"dataset", options_.start.dataset()}, {"status", status.ToString()}});
    dealer_.fail(status);
  }
  changed_.notify_all();
}

Deadline Dataset::soon() const { return Deadline::in(*world_.clock, kCallPatience); }

bool Dataset::pause(Duration time) {
  const Deadline deadline = Deadline::in(*world_.clock, time);
  MutexLock lock(mutex_);
  while (!is_stopping_ && changed_.wait(mutex_, deadline)) {
  }
  return !is_stopping_;
}

void Dataset::note_memory(size_t bytes) {
  MutexLock lock(mutex_);
  read_bytes_ = bytes + kChunksAhead * source_.chunk_bytes;
  peak_bytes_ = std::max(peak_bytes_, read_bytes_ + fed_bytes_);
}

uint32_t Dataset::first_epoch() const {
  uint32_t epoch = options_.start.first_epoch();
  for (const v1::Watermark& mark : options_.start.resume()) epoch = std::max(epoch, mark.epoch());
  return epoch;
}

uint64_t Dataset::steps_before_queues() const {
  uint64_t steps = from_.steps_before();
  for (const v1::Watermark& mark : options_.start.resume()) {
    if (mark.epoch() < first_epoch()) steps += mark.done_below();
  }
  return steps;
}

// What the job has trained of the dataset: a hub that comes later, or after a cut, goes on with the
// numbers of steps where the others are.
Status Dataset::count_steps() {
  v1::GetJobOption ask;
  ask.set_with_work(true);
  ask.set_with_progress(true);
  StatusOr<v1::GetJobReply> job = world_.scheduler->get_job(ask, soon());
  while (!job.ok() && may_pass(job.status()) && pause(kRetry)) {
    job = world_.scheduler->get_job(ask, soon());
  }
  STARLING_RETURN_IF_ERROR(job.status());
  steps_before_ = steps_before_queues();
  for (const v1::WorkQueueInfo& queue : job->queues()) {
    if (queue.queue() != options_.start.dataset()) continue;
    for (const v1::WorkProgress& progress : queue.progress()) {
      steps_before_ += progress.done_below();
    }
  }
  return absl::OkStatus();
}

BadLinesOptions Dataset::bad_lines_options() const {
  const v1::StartSampleOption& option = options_.start;
  return {.skip = option.on_bad_line() == v1::ON_BAD_LINE_SKIP,
          .skip_max = option.bad_lines_max() == 0 ? kBadLinesMax : option.bad_lines_max()};
}

Status Dataset::prepare() {
  const v1::StartSampleOption& option = options_.start;
  STARLING_ASSIGN_OR_RETURN(FormatOptions format, format_options(option));
  STARLING_ASSIGN_OR_RETURN(std::vector<FieldOptions> fields, field_options(option));
  source_.pipe_command = option.pipe_command();
  source_.has_header = format.header;
  source_.records = format.name == "features" ? RecordKind::kPrefixed : RecordKind::kLines;
  if (format.line_bytes_max > 0) source_.record_bytes_max = format.line_bytes_max;
  source_.skips_long = option.on_bad_line() == v1::ON_BAD_LINE_SKIP;
  source_.item_bytes = options_.item_bytes;
  source_.pool = &chunks_;
  const std::vector<std::string> patterns(option.files().begin(), option.files().end());
  STARLING_ASSIGN_OR_RETURN(items_, list_items(*world_.files, patterns, source_));
  const uint64_t content = content_of(option, items_);
  if (from_.content() != 0 && from_.content() != content) {
    return failed_precondition(
        "dataset {}: its files, or the options that decide what a batch holds, are not those of "
        "the cut: it cannot go on there",
        option.dataset());
  }
  STARLING_ASSIGN_OR_RETURN(format_, Format::make(format, fields));
  if (options_.tables.size() == 1) {
    // A job with one table has it for every field that names none.
    fields = format_->fields();
    for (FieldOptions& field : fields) {
      const bool is_named = field.table != field.name && !field.table.empty();
      if (field.kind == FieldKind::kKeys && !is_named) field.table = options_.tables.front().name;
    }
    STARLING_ASSIGN_OR_RETURN(format_, Format::make(format, std::move(fields)));
  }
  STARLING_ASSIGN_OR_RETURN(
      BatchAssembler assembler,
      BatchAssembler::make(format_->schema(), options_.tables, {.rows_only = is_synchronous_}));
  assembler_ = std::make_unique<BatchAssembler>(std::move(assembler));
  bad_lines_ = std::make_unique<BadLines>(bad_lines_options());
  bad_log_ = std::make_unique<BadLog>(option.bad_lines_path(), *world_.files);
  const uint32_t threads = option.threads() == 0 ? options_.threads : option.threads();
  limits_.chunks_max = 2 * threads + 2;
  if (options_.memory_bytes_max > 0) {
    // Read ahead 5/64, read and parsed 1/8, in blocks to be shuffled 1/2, in batches 1/4.
    source_.chunk_bytes =
        std::clamp<size_t>(options_.memory_bytes_max / 64, kChunkBytesMin, source_.chunk_bytes);
    limits_.bytes_max = options_.memory_bytes_max / 8;
  }
  pool_ = std::make_unique<ParsePool>(
      format_,
      ParsePoolOptions{.threads = std::max(1U, threads),
                       .queue = limits_.chunks_max,
                       .bad_kept = bad_lines_->kept_max(),
                       .parse_ns = &world_.metrics->histogram(kParseTime, "ns")},
      *world_.clock);
  uint64_t bytes = 0;
  for (const v1::WorkItem& item : items_) bytes += item.hint_bytes();
  MutexLock lock(mutex_);
  content_ = content;
  dealer_.set_bytes_total(bytes * epochs_);
  is_ready_ = true;
  return absl::OkStatus();
}

Status Dataset::read_all() {
  STARLING_RETURN_IF_ERROR(prepare());
  if (!options_.start.memory().preload().empty()) {
    preloader_ = Thread({.name = "hub-preload"}, [this] { preload(); });
  }
  if (is_global_) STARLING_RETURN_IF_ERROR(load_shares());
  const uint32_t end = options_.start.first_epoch() + epochs_;
  for (uint32_t epoch = first_epoch(); epoch < end && !is_stopping_; ++epoch) {
    {
      MutexLock lock(mutex_);
      dealer_.set_idle(false);
    }
    STARLING_RETURN_IF_ERROR(fill_queue(options_.start.dataset(), epoch, order_of(epoch)));
    {
      MutexLock lock(mutex_);
      has_queue_ = true;
    }
    if (is_synchronous_) {
      STARLING_RETURN_IF_ERROR(begin_epoch(epoch));
    } else if (epoch == first_epoch()) {
      STARLING_RETURN_IF_ERROR(count_steps());
    }
    STARLING_RETURN_IF_ERROR(read_epoch(epoch));
  }
  MutexLock lock(mutex_);
  if (!is_stopping_) dealer_.end_data();
  return absl::OkStatus();
}

std::vector<v1::WorkItem> Dataset::order_of(uint32_t epoch) const {
  if (options_.start.shuffle_samples() == 0 || is_global_) return items_;
  const std::vector<uint32_t> order =
      permutation({.seed = options_.start.seed(), .epoch = epoch, .item = kAllItems},
                  static_cast<uint32_t>(items_.size()));
  std::vector<v1::WorkItem> out;
  for (uint32_t i = 0; i < order.size(); ++i) {
    out.push_back(items_[order[i]]);
    out.back().set_item(i);
  }
  return out;
}

// The first hub to come fills the queue; what it has found stands for all.
Status Dataset::fill_queue(const std::string& queue, uint32_t epoch,
                           const std::vector<v1::WorkItem>& items) {
  while (!is_stopping_) {
    v1::GetJobOption ask;
    ask.set_with_work(true);
    const StatusOr<v1::GetJobReply> job = world_.scheduler->get_job(ask, soon());
    if (!job.ok() && !may_pass(job.status())) return job.status();
    if (!job.ok()) continue;
    for (const v1::WorkQueueInfo& one : job->queues()) {
      if (one.queue() == queue && one.epoch() == epoch && one.complete()) return absl::OkStatus();
    }
    Status added;
    size_t at = 0;
    do {
      v1::AddWorkOption option;
      option.set_queue(queue);
      option.set_epoch(epoch);
      while (at < items.size() && option.items_size() < kItemsPerCall) {
        *option.add_items() = items[at++];
      }
      option.set_complete(at == items.size());
      if (option.complete() && queue == options_.start.dataset()) {
        for (const v1::Watermark& mark : options_.start.resume()) {
          if (mark.epoch() != epoch) continue;
          *option.add_progress() = progress_of(mark, batch_size_of(options_.start));
        }
      }
      added = world_.scheduler->add_work(option, soon()).status();
    } while (added.ok() && at < items.size());
    if (added.ok()) return absl::OkStatus();
    // Another hub was first, or the scheduler is away: look again.
    const bool is_race = added.code() == StatusCode::kAlreadyExists ||
                         added.code() == StatusCode::kFailedPrecondition;
    if (!is_race && !may_pass(added)) return added;
    if (reason_of(added) != v1::REASON_NONE) return added;
    pause(kRetry);
  }
  return absl::OkStatus();
}

Status Dataset::read_epoch(uint32_t epoch) {
  while (!is_stopping_) {
    v1::TakeWorkOption option;
    option.set_queue(options_.start.dataset());
    option.set_epoch(epoch);
    if (is_synchronous_ || is_memory_) {
      option.set_hub(options_.hub);
      option.set_hubs(options_.hubs);
    }
    StatusOr<v1::TakeWorkReply> taken = world_.scheduler->take_work(option, soon());
    // What a hub has loaded is best dealt by it; then it helps the others.
    if (is_memory_ && !is_synchronous_ && taken.ok() && taken->leases().empty()) {
      option.clear_hub();
      option.clear_hubs();
      taken = world_.scheduler->take_work(option, soon());
    }
    if (!taken.ok()) {
      if (!may_pass(taken.status())) return taken.status();
      pause(kRetry);
      continue;
    }
    {
      MutexLock lock(mutex_);
      dealer_.set_idle(taken->leases().empty());
    }
    for (const v1::WorkLease& lease : taken->leases()) {
      STARLING_RETURN_IF_ERROR(read_item(epoch, lease));
    }
    if (!taken->leases().empty()) continue;
    if (is_synchronous_) {
      STARLING_RETURN_IF_ERROR(find_epoch_end(epoch));
      STARLING_RETURN_IF_ERROR(agree_on_next(epoch));
    }
    STARLING_ASSIGN_OR_RETURN(const bool is_done, is_epoch_done(epoch));
    if (is_done) return absl::OkStatus();
    if (is_global_) STARLING_RETURN_IF_ERROR(take_share().status());
    pause(kRetry);
  }
  return absl::OkStatus();
}

StatusOr<bool> Dataset::is_epoch_done(uint32_t epoch) {
  v1::GetJobOption ask;
  ask.set_with_work(true);
  const StatusOr<v1::GetJobReply> job = world_.scheduler->get_job(ask, soon());
  if (!job.ok()) {
    if (may_pass(job.status())) return false;
    return job.status();
  }
  for (const v1::WorkQueueInfo& queue : job->queues()) {
    if (queue.queue() != options_.start.dataset() || queue.epoch() != epoch) continue;
    return queue.complete() && queue.done() == queue.items();
  }
  return not_found("the scheduler has no queue {} of epoch {}", options_.start.dataset(), epoch);
}

Status Dataset::read_item(uint32_t epoch, const v1::WorkLease& lease) {
  const ItemName name{epoch, lease.work().item()};
  {
    MutexLock lock(mutex_);
    lost_.erase(name);
    dealer_.add_item(name, start_of(lease));
  }
  tend_soon();
  if (is_synchronous_) {
    STARLING_ASSIGN_OR_RETURN(base_, find_base(name));
    MutexLock lock(mutex_);
    dealer_.set_base(name, base_);
  }
  const v1::StartSampleOption& option = options_.start;
  BatchCutter cutter({.batch_size = batch_size_of(option),
                      .shuffle_samples = shuffle_samples_of(option),
                      .seed = option.seed(),
                      .epoch = epoch,
                      .item = name.item});
  ItemCounts counts;
  STARLING_ASSIGN_OR_RETURN(const bool is_whole,
                            is_global_   ? deal_slice(name, lease, cutter, counts)
                            : is_memory_ ? deal_loaded(name, lease, cutter, counts)
                                         : deal_stream(name, lease, cutter, counts));
  if (!is_whole) return absl::OkStatus();
  return finish_item(name, counts, cutter.batches());
}

StatusOr<bool> Dataset::deal_stream(const ItemName& name, const v1::WorkLease& lease,
                                    BatchCutter& cutter, ItemCounts& counts) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<ItemSource> source,
                            ItemSource::open(*world_.files, lease.work(), source_, *world_.clock));
  SampleReader reader(*source, *pool_, *bad_lines_, *bad_log_, limits_);
  uint64_t bytes = 0;  // counted already
  for (bool is_read = false; !is_read;) {
    STARLING_ASSIGN_OR_RETURN(std::shared_ptr<const SampleBlock> samples, reader.next());
    is_read = samples == nullptr;
    bytes_read_.add(source->bytes_read() - std::exchange(bytes, source->bytes_read()));
    if (!is_read) samples_parsed_.add(samples->samples());
    is_read ? cutter.end() : cutter.add(std::move(samples));
    note_memory(reader.bytes() + cutter.bytes());
    if (options_.memory_bytes_max > 0 && cutter.bytes() > options_.memory_bytes_max / 2) {
      return resource_exhausted(
          "{}: {} bytes of samples wait to be shuffled, half of hub.memory_max ({}): make "
          "data.shuffle_samples ({}) smaller",
          source->path(), cutter.bytes(), options_.memory_bytes_max,
          options_.start.shuffle_samples());
    }
    STARLING_ASSIGN_OR_RETURN(const bool goes_on, deal(name, lease.done_below(), cutter, counts));
    if (!goes_on) return false;
  }
  const ParseCounts& parsed = reader.counts();
  counts.samples_read = parsed.records;
  counts.samples_skipped = parsed.records - parsed.samples;
  counts.bytes_read = source->bytes_read();
  return true;
}

// Everything that the cutter has by now.
StatusOr<bool> Dataset::deal(const ItemName& name, uint64_t done_below, BatchCutter& cutter,
                             ItemCounts& counts) {
  while (const auto batch = cutter.next()) {
    const uint64_t number = cutter.batches() - 1;
    if (number < done_below) {
      counts.samples_before += batch->size();
      continue;
    }
    STARLING_ASSIGN_OR_RETURN(const bool has_room, wait_for_room(name));
    if (!has_room) return false;
    STARLING_RETURN_IF_ERROR(give_batch(name, *batch, number));
  }
  return true;
}

Status Dataset::finish_item(const ItemName& name, const ItemCounts& counts, uint64_t batches) {
  if (is_synchronous_) {
    STARLING_RETURN_IF_ERROR(
        put_number(key_of(name.epoch, std::to_string(name.item)), base_ + batches));
  }
  {
    MutexLock lock(mutex_);
    dealer_.end_item(name, batches, counts);
  }
  tend_soon();
  return absl::OkStatus();
}

StatusOr<bool> Dataset::wait_for_room(const ItemName& name) {
  MutexLock lock(mutex_);
  while (true) {
    if (is_stopping_ || lost_.contains(name)) return false;
    STARLING_RETURN_IF_ERROR(dealer_.failure());
    const bool is_heavy =
        options_.memory_bytes_max > 0 && fed_bytes_ > options_.memory_bytes_max / 4;
    // What waits for nobody goes through, however heavy it is: a group is dealt whole.
    const bool is_first = fed_.size() < std::max(1U, options_.start.group_batches());
    if (dealer_.room() > 0 && (!is_heavy || is_first)) return true;
    waits_.add();
    changed_.wait(mutex_, Deadline::in(*world_.clock, kCallPatience));
  }
}

Status Dataset::give_batch(const ItemName& name, std::span<const SampleRef> samples,
                           uint64_t number) {
  PsClient::Routes routes = world_.ps->routes();
  while (routes == nullptr) {
    if (is_stopping_) return absl::OkStatus();
    const StatusOr<PsClient::Routes> waited = world_.ps->wait_for_map(soon());
    if (waited.ok()) routes = *waited;
  }
  std::vector<uint32_t> owners(kBuckets);
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    owners[bucket] = routes->owner_of_bucket(bucket);
  }
  const TimePoint start = world_.clock->now();
  STARLING_ASSIGN_OR_RETURN(
      const Batch batch,
      assembler_->assemble(samples, {.owner = owners, .shards = routes->shards()}));
  const uint64_t step =
      steps_before_ + (is_synchronous_ ? base_ + number : made_ * options_.hubs + options_.hub);
  const BatchPlace place{.id = {name.epoch, name.item, number},
                         .step = step,
                         .map_version = routes->version(),
                         .window = options_.window_max,
                         .is_fused = !options_.start.tensor_fuse_off()};
  const SampleSchema& schema = *format_->schema();
  Fed fed{.messages = std::make_shared<const std::vector<ShardMessage>>(
              feeds_of(batch, schema, options_.tables, place)),
          .bytes = batch.feed_bytes() + batch.trainer_bytes()};
  HubBatch lease = lease_of(batch, schema, options_.tables, place);
  assemble_ns_.record(world_.clock->now() - start);
  bytes_fed_.add(batch.feed_bytes());
  bytes_leased_.add(batch.trainer_bytes());
  samples_fed_.add(batch.samples);
  ++made_;
  {
    MutexLock lock(mutex_);
    fed_bytes_ += fed.bytes;
    peak_bytes_ = std::max(peak_bytes_, read_bytes_ + fed_bytes_);
    fed_[place.id] = std::move(fed);
    dealer_.add(std::move(lease));
  }
  send_feeds();
  return absl::OkStatus();
}

}  // namespace starling
