// The control lane's part of a dataset: feeds, the scheduler's queue, watermarks, cuts.
#include "hub/dataset.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "hub/rates.h"
#include "wire/enums.h"

namespace starling {
namespace {

constexpr Duration kTendEvery = milliseconds(50);
constexpr Duration kFeedPatience = seconds(60);
constexpr Duration kFeedRetry = milliseconds(50);
constexpr Duration kSchedulerPatience = seconds(30);
constexpr uint32_t kWindow = 64;
constexpr uint32_t kLeaseMs = 60'000;

DealerOptions dealer_options(const v1::StartSampleOption& option) {
  DealerOptions out;
  out.window = option.window() == 0 ? kWindow : option.window();
  out.lease = milliseconds(option.lease_ms() == 0 ? kLeaseMs : option.lease_ms());
  out.group_batches = std::max(1U, option.group_batches());
  out.has_clocks = option.has_staleness();
  out.is_synchronous = option.has_staleness() && option.staleness() == 0;
  out.ranks = option.ranks();
  return out;
}

Status check(const DatasetOptions& options) {
  const v1::StartSampleOption& option = options.start;
  const DealerOptions dealer = dealer_options(option);
  if (option.dataset().empty()) return invalid_argument("Hub.StartSample: dataset has no name");
  STARLING_RETURN_IF_ERROR(check_enum(option.purpose(), "Hub.StartSample: purpose"));
  STARLING_RETURN_IF_ERROR(check_enum(option.kind(), "Hub.StartSample: kind"));
  STARLING_RETURN_IF_ERROR(check_enum(option.on_bad_line(), "Hub.StartSample: on_bad_line"));
  if (option.files().empty()) {
    return invalid_argument("Hub.StartSample: dataset {} has no files", option.dataset());
  }
  if (dealer.window > options.window_max || dealer.window < dealer.group_batches) {
    return invalid_argument("Hub.StartSample: window is {}, {} to {} are allowed", dealer.window,
                            dealer.group_batches, options.window_max);
  }
  if (option.batch_size() > 1 << 20) {
    return invalid_argument("Hub.StartSample: batch_size is {}, at most {} are allowed",
                            option.batch_size(), 1 << 20);
  }
  const bool is_memory = option.kind() == v1::DATASET_KIND_MEMORY;
  if (!is_memory &&
      (option.merge_by_id() || option.memory().global_shuffle() ||
       !option.memory().slots_shuffle().empty() || !option.memory().preload().empty())) {
    return invalid_argument(
        "Hub.StartSample: merge_by_id, global_shuffle, slots_shuffle and preload are of memory "
        "datasets");
  }
  if (!dealer.is_synchronous) return absl::OkStatus();
  if (dealer.ranks == 0) return invalid_argument("Hub.StartSample: staleness 0 needs ranks");
  if (dealer.group_batches > 1) {
    return invalid_argument("Hub.StartSample: gradients are not merged over steps at staleness 0");
  }
  return absl::OkStatus();
}

}  // namespace

Dataset::Dataset(const DatasetWorld& world, DatasetOptions options, hubs::DatasetPosition from)
    : world_(world),
      options_(std::move(options)),
      from_(std::move(from)),
      epochs_(std::max(1U, options_.start.epochs())),
      has_clocks_(options_.start.has_staleness()),
      is_synchronous_(dealer_options(options_.start).is_synchronous),
      is_memory_(options_.start.kind() == v1::DATASET_KIND_MEMORY),
      is_global_(options_.start.memory().global_shuffle()),
      dealer_(dealer_options(options_.start)),
      assemble_ns_(world.metrics->histogram(kAssembleTime, "ns")),
      feed_ns_(world.metrics->histogram(kFeedTime, "ns")),
      batches_fed_(world.metrics->counter("hub.batches_fed")),
      bytes_fed_(world.metrics->counter(kBytesFed)),
      bytes_leased_(world.metrics->counter(kBytesLeased)),
      bytes_read_(world.metrics->counter(kBytesRead)),
      samples_parsed_(world.metrics->counter(kSamplesParsed)),
      samples_fed_(world.metrics->counter(kSamplesFed)),
      waits_(world.metrics->counter("hub.waits")),
      samples_preloaded_(world.metrics->counter("hub.samples_preloaded")) {
  for (const v1::RankSeats& seats : options_.seats) dealer_.seat(seats);
  // Told again, by a scheduler that was started again, it is no newer map.
  if (const PsClient::Routes routes = world_.ps->routes(); routes != nullptr) {
    map_version_ = routes->version();
  }
}

StatusOr<std::shared_ptr<Dataset>> Dataset::start(const DatasetWorld& world,
                                                  DatasetOptions options) {
  STARLING_RETURN_IF_ERROR(check(options));
  STARLING_ASSIGN_OR_RETURN(hubs::DatasetPosition from, position_in(options.start));
  std::shared_ptr<Dataset> dataset(new Dataset(world, std::move(options), std::move(from)));
  dataset->thread_ = Thread({.name = "hub-read"}, [raw = dataset.get()] { raw->run(); });
  world.lane->post([self = dataset->weak_from_this()] {
    if (const auto alive = self.lock()) alive->arm();
  });
  return dataset;
}

Dataset::~Dataset() {
  stop();
  join();
}

void Dataset::stop() {
  is_stopping_ = true;
  MutexLock lock(mutex_);
  changed_.notify_all();
}

Message Dataset::describe() const {
  Message reply;
  v1::StartSampleReply* out = reply.meta.mutable_start_sample_reply();
  MutexLock lock(mutex_);
  *out->mutable_counts() = dealer_.counts();
  if (!dealer_.failure().ok()) {
    to_proto(dealer_.failure(), reply.meta.mutable_status());
    out->set_state(v1::DATASET_STATE_FAILED);
    return reply;
  }
  out->set_state(is_ready_ ? dealer_.state() : v1::DATASET_STATE_LOADING);
  if (!is_ready_) return reply;
  const SampleSchema& schema = *format_->schema();
  for (const std::string& field : schema.dense) out->add_dense_fields(field);
  for (const std::string& field : schema.labels) out->add_label_fields(field);
  for (const KeyField& field : schema.keys) out->add_key_fields(field.name);
  return reply;
}

Message Dataset::read(const Message& request) {
  Message reply;
  bool is_urgent = false;
  {
    MutexLock lock(mutex_);
    const size_t before = dealer_.room();
    reply = dealer_.read(request, world_.clock->now());
    drop_done();
    if (dealer_.room() != before) changed_.notify_all();
    is_urgent = dealer_.wants_renewal() || !dealer_.finished().empty();
  }
  send_feeds();
  if (is_urgent) tend_soon();
  return reply;
}

void Dataset::drop_done() {
  for (auto it = fed_.begin(); it != fed_.end();) {
    if (dealer_.find(it->first) != nullptr) {
      ++it;
      continue;
    }
    fed_bytes_ -= it->second.bytes;
    it = fed_.erase(it);
  }
}

v1::DatasetState Dataset::state() const {
  MutexLock lock(mutex_);
  return is_ready_ || !dealer_.failure().ok() ? dealer_.state() : v1::DATASET_STATE_LOADING;
}
v1::DatasetCounts Dataset::counts() const {
  MutexLock lock(mutex_);
  return dealer_.counts();
}
size_t Dataset::open_batches() const {
  MutexLock lock(mutex_);
  return dealer_.open_batches();
}
size_t Dataset::fed_batches() const {
  MutexLock lock(mutex_);
  return fed_.size();
}
uint64_t Dataset::clock_dealt() const {
  MutexLock lock(mutex_);
  return dealer_.clock_dealt();
}
size_t Dataset::memory_bytes() const {
  MutexLock lock(mutex_);
  return read_bytes_ + fed_bytes_;
}
size_t Dataset::memory_bytes_peak() const {
  MutexLock lock(mutex_);
  return peak_bytes_;
}
Status Dataset::failure() const {
  MutexLock lock(mutex_);
  return dealer_.failure();
}

void Dataset::on_event(const v1::Event& event) {
  if (event.has_map()) cut_anew();
  MutexLock lock(mutex_);
  if (event.has_rank()) dealer_.on_rank(event.rank());
  if (event.has_job() && event.job().generation() == options_.generation) {
    for (const v1::RankSeats& seats : event.job().seats()) dealer_.seat(seats);
  }
  if (event.has_node() && (event.node().state() == v1::NODE_STATE_DEAD ||
                           event.node().state() == v1::NODE_STATE_LEFT)) {
    dealer_.on_node_gone(event.node().id());
  }
}

void Dataset::arm() {
  if (is_stopping_) return;
  timer_ = world_.lane->call_at(world_.clock->now() + kTendEvery, [self = weak_from_this()] {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    alive->tend();
    alive->arm();
  });
}

void Dataset::tend_soon() {
  if (is_tend_posted_.exchange(true)) return;
  world_.lane->post([self = weak_from_this()] {
    if (const auto alive = self.lock()) {
      alive->is_tend_posted_ = false;
      alive->tend();
    }
  });
}

void Dataset::tend() {
  if (is_stopping_) return;
  renew();
  if (is_global_) renew_shares();
  acknowledge();
  send_marks();
  send_feeds();
  check_drained();
}

void Dataset::renew() {
  const TimePoint now = world_.clock->now();
  std::map<uint32_t, std::vector<std::pair<ItemName, v1::WorkProgress>>> by_epoch;
  {
    MutexLock lock(mutex_);
    if (is_renewing_ || (!dealer_.wants_renewal() && now < renewed_ + renew_every_)) return;
    for (auto& one : dealer_.progress()) by_epoch[one.first.epoch].push_back(std::move(one));
  }
  renewed_ = now;
  // One epoch at a time; the rest follows with the next turn of the timer.
  if (by_epoch.empty()) return;
  const auto& [epoch, items] = *by_epoch.begin();
  Message request;
  v1::RenewWorkOption* option = request.meta.mutable_renew_work();
  option->set_queue(options_.start.dataset());
  option->set_epoch(epoch);
  for (const auto& [name, progress] : items) *option->add_items() = progress;
  is_renewing_ = true;
  world_.scheduler->call(
      Method::kSchedulerRenewWork, std::move(request),
      Deadline::in(*world_.clock, kSchedulerPatience),
      [self = weak_from_this(), items = items](StatusOr<Message> reply) {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->is_renewing_ = false;
        if (!reply.ok()) return;
        const v1::RenewWorkReply& told = reply->meta.renew_work_reply();
        if (told.lease_ms() > 0) alive->renew_every_ = milliseconds(told.lease_ms()) / 4;
        MutexLock lock(alive->mutex_);
        for (const auto& [name, progress] : items) {
          const bool is_lost =
              std::find(told.lost().begin(), told.lost().end(), name.item) != told.lost().end();
          if (!is_lost) {
            alive->dealer_.known(name, progress);
            continue;
          }
          alive->world_.log.warning("item_lost", {{"epoch", name.epoch}, {"item", name.item}});
          alive->dealer_.lose_item(name);
          alive->lost_.insert(name);
          alive->drop_done();
          alive->changed_.notify_all();
        }
      });
}

void Dataset::acknowledge() {
  std::vector<std::pair<ItemName, v1::WorkProgress>> items;
  {
    MutexLock lock(mutex_);
    if (is_acking_) return;
    items = dealer_.finished();
  }
  if (items.empty()) return;
  // Items of one epoch in one request.
  const uint32_t epoch = items.front().first.epoch;
  std::erase_if(items, [&](const auto& one) { return one.first.epoch != epoch; });
  Message request;
  v1::AckWorkOption* option = request.meta.mutable_ack_work();
  option->set_queue(options_.start.dataset());
  option->set_epoch(epoch);
  for (const auto& [name, progress] : items) *option->add_items() = progress;
  is_acking_ = true;
  world_.scheduler->call(Method::kSchedulerAckWork, std::move(request),
                         Deadline::in(*world_.clock, kSchedulerPatience),
                         [self = weak_from_this(), items](StatusOr<Message> reply) {
                           const auto alive = self.lock();
                           if (alive == nullptr) return;
                           alive->is_acking_ = false;
                           MutexLock lock(alive->mutex_);
                           for (const auto& [name, progress] : items) {
                             if (reply.ok()) alive->dealer_.acked(name);
                             // Somebody else has it, and finds it done on the shards.
                             if (reason_of(reply.status()) == v1::REASON_LEASE_LOST) {
                               alive->dealer_.lose_item(name);
                             }
                           }
                           alive->changed_.notify_all();
                         });
}

// Feeds carry watermarks; without feeds they travel alone.
void Dataset::send_marks() {
  std::vector<v1::Watermark> marks;
  {
    MutexLock lock(mutex_);
    if (is_marking_) return;
    marks = dealer_.marks();
  }
  const PsClient::Routes routes = world_.ps->routes();
  if (marks.empty() || routes == nullptr) return;
  std::vector<ShardMessage> messages(routes->shards());
  for (uint32_t shard = 0; shard < messages.size(); ++shard) {
    messages[shard].shard = shard;
    v1::FeedSampleOption* option = messages[shard].message.meta.mutable_feed_sample();
    *option->mutable_watermarks() = {marks.begin(), marks.end()};
  }
  is_marking_ = true;
  world_.ps->call(Method::kPsFeedSample, std::move(messages),
                  Deadline::in(*world_.clock, kFeedPatience),
                  [self = weak_from_this(), marks](const StatusOr<std::vector<Message>>& replies) {
                    const auto alive = self.lock();
                    if (alive == nullptr) return;
                    alive->is_marking_ = false;
                    MutexLock lock(alive->mutex_);
                    if (replies.ok()) alive->dealer_.marked(marks);
                    alive->changed_.notify_all();
                  });
}

void Dataset::cut_anew() {
  const PsClient::Routes routes = world_.ps->routes();
  std::map<uint32_t, v1::GiveBackWorkOption> by_epoch;
  {
    MutexLock lock(mutex_);
    if (routes == nullptr || routes->version() == map_version_) return;
    map_version_ = routes->version();
    for (const auto& [name, progress] : dealer_.progress()) {
      *by_epoch[name.epoch].add_items() = progress;
      dealer_.lose_item(name);
      lost_.insert(name);
    }
    drop_done();
    changed_.notify_all();
  }
  for (auto& [epoch, option] : by_epoch) {
    option.set_queue(options_.start.dataset());
    option.set_epoch(epoch);
    Message request;
    *request.meta.mutable_give_back_work() = std::move(option);
    // When it is lost the items come back with the end of their leases.
    world_.scheduler->call(Method::kSchedulerGiveBackWork, std::move(request),
                           Deadline::in(*world_.clock, kSchedulerPatience),
                           [](const StatusOr<Message>&) {});
  }
}

void Dataset::send_feeds() {
  std::vector<BatchId> ids;
  {
    MutexLock lock(mutex_);
    ids = dealer_.take_feeds();
  }
  for (const BatchId& id : ids) send_feed(id);
}

void Dataset::send_feed(const BatchId& id) {
  std::vector<ShardMessage> messages;
  std::vector<v1::Watermark> marks;
  {
    MutexLock lock(mutex_);
    const auto it = fed_.find(id);
    if (it == fed_.end() || it->second.is_out) return;
    it->second.is_out = true;
    messages = *it->second.messages;
    marks = dealer_.marks();
  }
  for (ShardMessage& one : messages) {
    *one.message.meta.mutable_feed_sample()->mutable_watermarks() = {marks.begin(), marks.end()};
  }
  const TimePoint start = world_.clock->now();
  world_.ps->call(
      Method::kPsFeedSample, std::move(messages), Deadline::in(*world_.clock, kFeedPatience),
      [self = weak_from_this(), id, marks, start](const StatusOr<std::vector<Message>>& replies) {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->feed_ns_.record(alive->world_.clock->now() - start);
        alive->fed(id, marks, replies.status());
      });
}

void Dataset::fed(const BatchId& id, const std::vector<v1::Watermark>& marks,
                  const Status& status) {
  MutexLock lock(mutex_);
  const auto it = fed_.find(id);
  if (it != fed_.end()) it->second.is_out = false;
  if (status.ok()) {
    dealer_.fed(id);
    dealer_.marked(marks);
    batches_fed_.add();
    changed_.notify_all();
    return;
  }
  // A full window passes when the watermarks of other hubs' batches arrive, a ps that is silent
  // comes back or is declared dead, and then the job says so; hubs may read before the trainers
  // have frozen the tables.
  const bool may_pass = reason_of(status) == v1::REASON_NOT_FROZEN ||
                        status.code() == StatusCode::kResourceExhausted ||
                        status.code() == StatusCode::kDeadlineExceeded ||
                        status.code() == StatusCode::kUnavailable;
  if (is_stopping_ || it == fed_.end()) return;
  // The map that the shard goes by is on its way here, and cuts the batch anew.
  const bool is_stale = reason_of(status) == v1::REASON_STALE_MAP;
  if (!may_pass && !is_stale) {
    dealer_.fail(with_context(status, fmt::format("feed of batch {}", text_of(id))));
    changed_.notify_all();
    return;
  }
  world_.lane->call_at(world_.clock->now() + kFeedRetry, [self = weak_from_this(), id] {
    if (const auto alive = self.lock()) alive->send_feed(id);
  });
}

void Dataset::drain(std::optional<uint64_t> clock, Drained done) {
  drained_ = std::move(done);
  {
    MutexLock lock(mutex_);
    // Evaluations and jobs without clocks only finish what they have begun.
    dealer_.drain(has_clocks_ ? clock : std::nullopt);
  }
  tend();
}

void Dataset::resume() {
  drained_ = nullptr;
  MutexLock lock(mutex_);
  dealer_.resume();
}

hubs::DatasetPosition Dataset::position(std::optional<uint64_t> clock) const {
  hubs::DatasetPosition out;
  out.set_dataset(options_.start.dataset());
  if (has_clocks_ && clock.has_value()) out.set_clock(*clock);
  out.set_steps_before(steps_before_queues());
  MutexLock lock(mutex_);
  out.set_content(content_);
  return out;
}

// What is drained here may still be open elsewhere: an item that a dead hub had begun. The queue
// tells, and it is the record of the cut.
void Dataset::check_drained() {
  DrainedAt at;
  bool has_passed = false;
  {
    MutexLock lock(mutex_);
    // Before the queue has what a resumed dataset goes on from, a cut would begin it anew.
    if (drained_ == nullptr || is_checking_ || !has_queue_) return;
    at.clock = dealer_.drained_at();
    has_passed = at.clock != dealer_.drain_clock();
    if (!has_passed && !dealer_.is_drained()) return;
  }
  if (has_passed) return std::exchange(drained_, nullptr)(std::move(at));
  is_checking_ = true;
  Message request;
  request.meta.mutable_get_job()->set_with_work(true);
  request.meta.mutable_get_job()->set_with_progress(true);
  world_.scheduler->call(
      Method::kSchedulerGetJob, std::move(request), Deadline::in(*world_.clock, kSchedulerPatience),
      [self = weak_from_this(), at = std::move(at)](StatusOr<Message> reply) mutable {
        const auto alive = self.lock();
        if (alive == nullptr) return;
        alive->is_checking_ = false;
        if (!reply.ok() || alive->drained_ == nullptr) return;
        for (const v1::WorkQueueInfo& queue : reply->meta.get_job_reply().queues()) {
          if (queue.queue() != alive->options_.start.dataset()) continue;
          for (const v1::WorkProgress& progress : queue.progress()) {
            at.marks.push_back(mark_of(queue.epoch(), progress));
          }
        }
        std::exchange(alive->drained_, nullptr)(std::move(at));
      });
}

}  // namespace starling
