#include "worker/worker.h"

#include <algorithm>
#include <deque>
#include <map>

#include "base/check.h"
#include "base/mutex.h"

namespace starling {
namespace {

// Ids of steps without data: no dataset has such an epoch.
constexpr uint32_t kNoEpoch = 0xffffffff;
// How often a waiting caller looks after its leases.
constexpr Duration kLook = milliseconds(20);

bool is_same(const v1::BatchId& a, const v1::BatchId& b) {
  return a.epoch() == b.epoch() && a.item() == b.item() && a.number() == b.number();
}

Message step_message(const v1::BatchId& id, std::optional<uint32_t> rank, uint64_t clock) {
  Message message;
  v1::Header* header = message.meta.mutable_header();
  *header->mutable_batch() = id;
  if (rank.has_value()) {
    header->set_rank(*rank);
    header->set_clock(clock);
  }
  return message;
}

void add_counts(const v1::DatasetCounts& counts, v1::DatasetCounts& sum) {
  sum.set_samples_read(sum.samples_read() + counts.samples_read());
  sum.set_samples_done(sum.samples_done() + counts.samples_done());
  sum.set_samples_skipped(sum.samples_skipped() + counts.samples_skipped());
  sum.set_batches_dealt(sum.batches_dealt() + counts.batches_dealt());
  sum.set_batches_done(sum.batches_done() + counts.batches_done());
  sum.set_batches_again(sum.batches_again() + counts.batches_again());
  sum.set_bytes_read(sum.bytes_read() + counts.bytes_read());
  sum.set_bytes_total(std::max(sum.bytes_total(), counts.bytes_total()));
}

StatusOr<std::optional<Tensor>> tensor_of(const Message& reply, bool is_there, uint32_t index,
                                          DType dtype, size_t extents, uint32_t samples) {
  if (!is_there) return std::optional<Tensor>();
  if (index >= reply.tensors.size()) {
    return invalid_argument("a lease points at tensor {} of {}", index, reply.tensors.size());
  }
  const Tensor& tensor = reply.tensors[index];
  STARLING_RETURN_IF_ERROR(tensor.expect("a tensor of a lease", dtype, extents));
  if (tensor.shape()[0] != samples) {
    return invalid_argument("a lease of {} samples has {}", samples, tensor.describe());
  }
  return std::optional<Tensor>(tensor);
}

StatusOr<std::unique_ptr<StepBatch>> batch_of(const Message& reply, const v1::BatchLease& lease,
                                              uint32_t shards) {
  auto batch = std::make_unique<StepBatch>();
  batch->id = lease.batch();
  batch->step = lease.step();
  STARLING_ASSIGN_OR_RETURN(batch->layout, StepLayout::make(lease, reply.tensors, shards));
  const auto floats = [&](bool is_there, uint32_t index, size_t extents) {
    return tensor_of(reply, is_there, index, DType::kFloat32, extents, lease.samples());
  };
  STARLING_ASSIGN_OR_RETURN(batch->dense,
                            floats(lease.has_dense_tensor(), lease.dense_tensor(), 2));
  STARLING_ASSIGN_OR_RETURN(batch->labels,
                            floats(lease.has_labels_tensor(), lease.labels_tensor(), 2));
  STARLING_ASSIGN_OR_RETURN(batch->weights,
                            floats(lease.has_weights_tensor(), lease.weights_tensor(), 1));
  STARLING_ASSIGN_OR_RETURN(batch->shows,
                            floats(lease.has_shows_tensor(), lease.shows_tensor(), 1));
  STARLING_ASSIGN_OR_RETURN(batch->clicks,
                            floats(lease.has_clicks_tensor(), lease.clicks_tensor(), 1));
  STARLING_ASSIGN_OR_RETURN(batch->groups,
                            tensor_of(reply, lease.has_groups_tensor(), lease.groups_tensor(),
                                      DType::kUInt64, 1, lease.samples()));
  if (lease.ids_size() != 0 && static_cast<uint32_t>(lease.ids_size()) != lease.samples()) {
    return invalid_argument("a lease of {} samples has {} ids", lease.samples(), lease.ids_size());
  }
  batch->ids.assign(lease.ids().begin(), lease.ids().end());
  return batch;
}

}  // namespace

// Everything that answers touch. The caller's thread alone sends requests: an answer is noted, and
// acted on at the caller's next visit.
class Worker::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(HubClient& hubs, Communicator& ps, WorkerOptions options)
      : hubs_(hubs),
        ps_(ps),
        options_(std::move(options)),
        is_synchronous_(options_.trains && options_.staleness == 0U),
        has_clocks_(options_.trains && options_.staleness.has_value()),
        clock_(options_.start_clock),
        read_clock_(options_.start_clock) {}

  StatusOr<std::unique_ptr<StepBatch>> next(Deadline deadline);
  Status push(std::unique_ptr<StepBatch> batch, std::vector<Message> messages, Deadline deadline);
  void finish(std::unique_ptr<StepBatch> batch, bool is_refused);
  Status flush(Deadline deadline);
  Status tick_until(uint64_t clock, Deadline deadline);
  void cancel() {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = cancelled("the worker was told to end");
    changed_.notify_one();
  }
  uint64_t clock() {
    const MutexLock lock(mutex_);
    return clock_;
  }
  v1::DatasetCounts dataset_counts() {
    const MutexLock lock(mutex_);
    v1::DatasetCounts sum = gone_counts_;
    for (const auto& [hub, counts] : dataset_counts_) add_counts(counts, sum);
    return sum;
  }
  WorkerCounts counts() {
    const MutexLock lock(mutex_);
    return counts_;
  }
  Communicator::Routes routes_of(const StepBatch& batch) {
    const MutexLock lock(mutex_);
    return slot_of(batch.id)->routes;
  }
  // Adds gradients of variables to those of the batch's group; false: it stands alone.
  bool merge(const StepBatch& batch, const std::vector<WorkerVariable>& dense);

 private:
  // kBare: applied before by somebody else; its tick is all that is left. kPushed: acknowledged;
  // its group is not.
  enum class State { kRead, kLooking, kReady, kOut, kBare, kPushing, kPushed };
  // Batches under one lease, whose gradients of variables are pushed as their sum, with the last of
  // them.
  struct Group {
    v1::BatchId id;
    std::vector<WorkerVariable> sums;  // the caller's thread alone
  };
  struct Slot {
    v1::BatchId id;
    std::shared_ptr<Group> group;  // null: it stands alone
    State state = State::kRead;
    uint32_t hub = 0;
    TimePoint renewed_at;
    Duration lease{};
    uint64_t samples = 0;
    Communicator::Routes routes;  // by which it was fed
    std::unique_ptr<StepBatch> batch;
    bool has_clock = false;
    uint32_t rank = 0;
    uint64_t clock = 0;
    bool is_refused = false;
    bool is_given_up = false;  // another of its group went back: so does this one, when it ends
  };
  using SlotPtr = std::shared_ptr<Slot>;
  struct Hub {
    bool is_asked = false;  // a request is on its way
    bool is_new = false;    // it does not know the dataset
    TimePoint ask_at;       // not before
    v1::DatasetState state = v1::DATASET_STATE_UNKNOWN;
    v1::ReadSampleOption report;  // what it is told with the next request
    bool has_report() const {
      return report.done_size() + report.renewed_size() + report.given_back_size() +
                 report.failed_size() + report.feed_again_size() >
             0;
    }
  };

  // What the caller's thread does at each visit.
  void turn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void renew(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ask_hubs(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ask(uint32_t id, Hub& hub, uint32_t batches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void start_on(uint32_t id, Hub& hub) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void look_up_ahead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void look_up(const SlotPtr& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void send(const SlotPtr& slot, std::vector<Message> messages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void send_ticks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void empty_step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Answers, on the clients' lanes.
  void on_read(uint32_t id, const v1::ReadSampleOption& told, const StatusOr<Message>& reply);
  void take_leases(uint32_t id, const Message& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_looked_up(const SlotPtr& slot, StatusOr<std::vector<Message>> replies);
  void on_pushed(const SlotPtr& slot, const Status& status);

  // In the order of clocks, behind all that is out. A step that is being looked up may be waiting
  // for this one: what a rank left half pushed when it died comes late from a hub that came anew.
  std::deque<SlotPtr>::iterator place_of(const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find_if(slots_.begin(), slots_.end(), [&](const SlotPtr& other) {
      return slot.has_clock && other->state <= State::kLooking && other->clock > slot.clock;
    });
  }
  // The one that is in the caller's hands.
  SlotPtr slot_of(const v1::BatchId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A hub that came anew deals what the one before had dealt, also to whoever holds it: true when
  // that is so here, and what is held goes on under the new lease.
  bool renew_held(uint32_t hub, const v1::BatchLease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The slots under the same lease, itself included.
  std::vector<SlotPtr> members_of(const SlotPtr& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void add_sums(const SlotPtr& slot, std::vector<Message>& messages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void report_pushed(const SlotPtr& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void forget(const SlotPtr& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The hub is gone: what it has read and not trained is read again by another.
  void end_counts(uint32_t hub) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void give_back(const SlotPtr& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t in_state(State state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t unsent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_reported() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One turn, then a wait for an answer. DeadlineExceeded, or what went wrong.
  Status step(Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Deadline attempt() const { return Deadline::in(real_, options_.attempt); }

  HubClient& hubs_;
  Communicator& ps_;
  const WorkerOptions options_;
  const bool is_synchronous_;
  const bool has_clocks_;
  const RealClock real_{};

  Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, Hub> known_ ABSL_GUARDED_BY(mutex_);  // by node
  std::deque<SlotPtr> slots_ ABSL_GUARDED_BY(mutex_);      // in the order of their steps
  uint64_t clock_ ABSL_GUARDED_BY(mutex_);                 // of the next lookup
  uint64_t read_clock_ ABSL_GUARDED_BY(mutex_);            // synchronous: of the next read
  bool is_tick_due_ ABSL_GUARDED_BY(mutex_) = false;       // the next step is empty
  Status failure_ ABSL_GUARDED_BY(mutex_);
  WorkerCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, v1::DatasetCounts> dataset_counts_ ABSL_GUARDED_BY(mutex_);  // by hub
  v1::DatasetCounts gone_counts_ ABSL_GUARDED_BY(mutex_);
};

Worker::Core::SlotPtr Worker::Core::slot_of(const v1::BatchId& id) {
  for (const SlotPtr& slot : slots_) {
    if (slot->state == State::kOut && is_same(slot->id, id)) return slot;
  }
  STARLING_CHECK(false, "a batch that this worker did not give");
  return nullptr;
}

bool Worker::Core::renew_held(uint32_t hub, const v1::BatchLease& lease) {
  const auto held = std::find_if(slots_.begin(), slots_.end(), [&](const SlotPtr& slot) {
    return is_same(slot->id, lease.batch()) && !slot->is_given_up;
  });
  if (held == slots_.end()) return false;
  (*held)->hub = hub;
  (*held)->renewed_at = real_.now();
  (*held)->lease = milliseconds(lease.lease_ms());
  return true;
}

std::vector<Worker::Core::SlotPtr> Worker::Core::members_of(const SlotPtr& slot) const {
  if (slot->group == nullptr) return {slot};
  std::vector<SlotPtr> out;
  std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(out),
               [&](const SlotPtr& other) { return other->group == slot->group; });
  return out;
}

void Worker::Core::forget(const SlotPtr& slot) { std::erase(slots_, slot); }

void Worker::Core::end_counts(uint32_t hub) {
  const auto it = dataset_counts_.find(hub);
  if (it == dataset_counts_.end()) return;
  it->second.set_samples_read(it->second.samples_done() + it->second.samples_skipped());
  add_counts(it->second, gone_counts_);
  dataset_counts_.erase(it);
}

// With its group: what the group has merged is whole or nothing.
void Worker::Core::give_back(const SlotPtr& slot) {
  for (const SlotPtr& member : members_of(slot)) {
    if (member != slot && member->state >= State::kOut && member->state != State::kPushed) {
      member->is_given_up = true;
      continue;
    }
    *known_[member->hub].report.add_given_back() = member->id;
    ++counts_.given_back;
    forget(member);
  }
}

size_t Worker::Core::in_state(State state) const {
  return std::count_if(slots_.begin(), slots_.end(),
                       [state](const SlotPtr& slot) { return slot->state == state; });
}

size_t Worker::Core::unsent() const {
  return std::count_if(slots_.begin(), slots_.end(),
                       [](const SlotPtr& slot) { return slot->state < State::kPushing; });
}

bool Worker::Core::is_reported() const {
  return std::none_of(known_.begin(), known_.end(), [](const auto& entry) {
    return entry.second.is_asked || entry.second.has_report();
  });
}

bool Worker::Core::is_over() const {
  return slots_.empty() && !known_.empty() && is_reported() &&
         std::all_of(known_.begin(), known_.end(),
                     [](const auto& entry) { return entry.second.state == v1::DATASET_STATE_END; });
}

Status Worker::Core::step(Deadline deadline) {
  turn();
  if (!failure_.ok()) return failure_;
  const TimePoint now = real_.now();
  if (deadline.passed(now)) return deadline_exceeded("no answer of the hubs and shards in time");
  changed_.wait(mutex_, std::min(deadline, Deadline(now + kLook)));
  return failure_;
}

StatusOr<std::unique_ptr<StepBatch>> Worker::Core::next(Deadline deadline) {
  const TimePoint since = real_.now();
  const MutexLock lock(mutex_);
  turn();
  while (true) {
    if (!failure_.ok()) return failure_;
    const auto ready = std::find_if(slots_.begin(), slots_.end(), [](const SlotPtr& slot) {
      return slot->state <= State::kReady;
    });
    if (ready != slots_.end() && (*ready)->state == State::kReady) {
      (*ready)->state = State::kOut;
      counts_.waited += real_.now() - since;
      return std::move((*ready)->batch);
    }
    if (is_over()) return std::unique_ptr<StepBatch>();
    STARLING_RETURN_IF_ERROR(step(deadline));
  }
}

Status Worker::Core::push(std::unique_ptr<StepBatch> batch, std::vector<Message> messages,
                          Deadline deadline) {
  const TimePoint since = real_.now();
  const MutexLock lock(mutex_);
  const SlotPtr slot = slot_of(batch->id);
  send(slot, std::move(messages));
  turn();
  while (in_state(State::kPushing) > options_.ahead) {
    STARLING_RETURN_IF_ERROR(step(deadline));
  }
  counts_.waited += real_.now() - since;
  return failure_;
}

void Worker::Core::finish(std::unique_ptr<StepBatch> batch, bool is_refused) {
  const MutexLock lock(mutex_);
  const SlotPtr slot = slot_of(batch->id);
  slot->is_refused = is_refused;
  if (options_.trains) {
    // A step of a rank is a tick, with or without data.
    send(slot, std::vector<Message>(slot->routes->shards()));
    return;
  }
  *known_[slot->hub].report.add_done() = slot->id;
  ++counts_.batches;
  counts_.samples += slot->samples;
  forget(slot);
  turn();
}

Status Worker::Core::flush(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (in_state(State::kPushing) > 0 || !is_reported()) {
    STARLING_RETURN_IF_ERROR(step(deadline));
  }
  return failure_;
}

Status Worker::Core::tick_until(uint64_t clock, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (clock_ < clock) {
    empty_step();
    while (in_state(State::kPushing) > 0) STARLING_RETURN_IF_ERROR(step(deadline));
  }
  return failure_;
}

void Worker::Core::turn() {
  const TimePoint now = real_.now();
  renew(now);
  ask_hubs(now);
  send_ticks();
  look_up_ahead();
}

void Worker::Core::renew(TimePoint now) {
  for (const SlotPtr& slot : slots_) {
    if (slot->lease == Duration::zero() || now < slot->renewed_at + slot->lease / 3) continue;
    slot->renewed_at = now;
    *known_[slot->hub].report.add_renewed() = slot->id;
  }
}

void Worker::Core::ask_hubs(TimePoint now) {
  const std::vector<uint32_t> alive = hubs_.hubs();
  const auto is_gone = [&](uint32_t id) {
    return !std::binary_search(alive.begin(), alive.end(), id);
  };
  for (const auto& [id, hub] : known_) {
    if (is_gone(id)) end_counts(id);
  }
  std::erase_if(known_,
                [&](const auto& entry) { return !entry.second.is_asked && is_gone(entry.first); });
  if (alive.empty()) return;
  for (const uint32_t id : alive) known_[id];
  // Room for what is read and not yet trained; at staleness 0 one is asked for at a time, because
  // a request names the clock.
  const size_t held = unsent();
  const bool is_asking = std::any_of(known_.begin(), known_.end(),
                                     [](const auto& entry) { return entry.second.is_asked; });
  size_t room = options_.ahead + 1 > held ? options_.ahead + 1 - held : 0;
  if (is_synchronous_) {
    // One that is being looked up keeps nothing out: it may wait for one that is still to come.
    if (held == in_state(State::kLooking)) room = 1;
    room = std::min<size_t>(room, is_asking || is_tick_due_ ? 0 : 1);
  }
  // Each rank starts at a hub of its own and goes on to the next when that has nothing.
  for (size_t i = 0; i < alive.size(); ++i) {
    const uint32_t id = alive[(options_.rank + i) % alive.size()];
    Hub& hub = known_[id];
    if (hub.is_asked) continue;
    if (hub.is_new) {
      start_on(id, hub);
      continue;
    }
    const bool may_read = room > 0 && now >= hub.ask_at && hub.state != v1::DATASET_STATE_END;
    if (!may_read && !hub.has_report()) continue;
    const auto wanted = std::max(static_cast<uint32_t>(room), options_.dataset.group_batches());
    ask(id, hub, may_read ? wanted : 0);
    if (may_read) room = 0;
  }
}

void Worker::Core::ask(uint32_t id, Hub& hub, uint32_t batches) {
  // The clock of what is asked for: behind all that is read.
  const auto unclocked = std::count_if(slots_.begin(), slots_.end(),
                                       [](const SlotPtr& slot) { return !slot->has_clock; });
  Message request = step_message({}, options_.trains ? std::optional(options_.rank) : std::nullopt,
                                 is_synchronous_ ? read_clock_ : clock_ + unclocked);
  request.meta.mutable_header()->clear_batch();
  v1::ReadSampleOption* option = request.meta.mutable_read_sample();
  option->Swap(&hub.report);
  hub.report.Clear();
  option->set_dataset(options_.dataset.dataset());
  option->set_batches_max(batches);
  hub.is_asked = true;
  hubs_.read(id, std::move(request), attempt(),
             [self = shared_from_this(), id, told = *option](StatusOr<Message> reply) {
               self->on_read(id, told, reply);
             });
}

void Worker::Core::start_on(uint32_t id, Hub& hub) {
  hub.is_asked = true;
  hubs_.start(id, options_.dataset, attempt(),
              [self = shared_from_this(), id](const StatusOr<Message>& reply) {
                const MutexLock lock(self->mutex_);
                Hub& mine = self->known_[id];
                mine.is_asked = false;
                mine.is_new = !reply.ok();
                mine.ask_at = self->real_.now() + kLook;
                if (!reply.ok() && reply.status().code() != StatusCode::kUnavailable) {
                  self->failure_ = reply.status();
                }
                self->changed_.notify_one();
              });
}

void Worker::Core::on_read(uint32_t id, const v1::ReadSampleOption& told,
                           const StatusOr<Message>& reply) {
  const MutexLock lock(mutex_);
  Hub& hub = known_[id];
  hub.is_asked = false;
  changed_.notify_one();
  if (!reply.ok()) {
    hub.ask_at = real_.now() + kLook;
    if (reply.status().code() == StatusCode::kNotFound) {
      end_counts(id);
      hub.is_new = true;
      hub.state = v1::DATASET_STATE_UNKNOWN;
    } else if (reply.status().code() != StatusCode::kUnavailable) {
      failure_ = reply.status();
    }
    return;
  }
  const v1::ReadSampleReply& read = reply->meta.read_sample_reply();
  hub.state = read.state();
  dataset_counts_[id] = read.counts();
  for (const v1::BatchId& lost : read.lost()) {
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const SlotPtr& slot) {
      return is_same(slot->id, lost) && slot->state < State::kOut;
    });
    // One that is out or being pushed ends by the shards' word, which know what has been applied.
    if (found != slots_.end()) give_back(*found);
  }
  if (read.batches_size() > 0) return take_leases(id, *reply);
  if (told.batches_max() == 0) return;
  hub.ask_at = real_.now() + milliseconds(read.retry_after_ms());
  const bool is_behind = is_synchronous_ && read.state() == v1::DATASET_STATE_END_OF_EPOCH;
  if (is_behind || (has_clocks_ && read.tick())) is_tick_due_ = true;
}

void Worker::Core::take_leases(uint32_t id, const Message& reply) {
  const Communicator::Routes routes = ps_.routes();
  std::shared_ptr<Group> group;
  std::vector<SlotPtr> unfit;
  for (const v1::BatchLease& lease : reply.meta.read_sample_reply().batches()) {
    if (renew_held(id, lease)) continue;
    auto slot = std::make_shared<Slot>();
    slot->id = lease.batch();
    if (lease.has_group() && (group == nullptr || !is_same(group->id, lease.group()))) {
      group = std::make_shared<Group>(Group{.id = lease.group(), .sums = {}});
    }
    if (lease.has_group()) slot->group = group;
    slot->hub = id;
    slot->renewed_at = real_.now();
    slot->lease = milliseconds(lease.lease_ms());
    slot->samples = lease.samples();
    slot->routes = routes;
    slot->rank = options_.rank;
    if (is_synchronous_) {
      const bool is_takeover = lease.has_rank() && lease.rank() != options_.rank;
      slot->has_clock = true;
      slot->rank = lease.has_rank() ? lease.rank() : options_.rank;
      slot->clock = lease.has_rank() ? lease.clock() : read_clock_;
      // One that was missed comes with its own clock; what is read next is not before that.
      if (!is_takeover) read_clock_ = std::max(read_clock_, slot->clock + 1);
    }
    slots_.insert(place_of(*slot), slot);
    if (routes == nullptr || routes->version() != lease.map_version()) {
      unfit.push_back(slot);
      continue;
    }
    StatusOr<std::unique_ptr<StepBatch>> batch = batch_of(reply, lease, routes->shards());
    if (!batch.ok()) {
      failure_ = batch.status();
      return;
    }
    slot->batch = *std::move(batch);
  }
  for (const SlotPtr& slot : unfit) {
    if (std::find(slots_.begin(), slots_.end(), slot) != slots_.end()) give_back(slot);
  }
}

void Worker::Core::look_up_ahead() {
  uint32_t ahead = options_.ahead;
  if (options_.trains && options_.staleness.has_value()) {
    ahead = std::min(ahead, *options_.staleness);
  }
  uint32_t before = 0;  // steps that are begun and whose push is not sent
  const std::deque<SlotPtr> slots = slots_;
  for (const SlotPtr& slot : slots) {
    if (slot->state >= State::kPushing) continue;
    if (before > ahead || (is_synchronous_ && before > 0)) return;
    if (slot->state == State::kRead) look_up(slot);
    ++before;
  }
}

void Worker::Core::look_up(const SlotPtr& slot) {
  if (!slot->has_clock) {
    slot->has_clock = true;
    slot->clock = clock_;
  }
  clock_ = std::max(clock_, slot->clock + 1);
  slot->state = State::kLooking;
  std::vector<ShardMessage> messages;
  for (uint32_t shard = 0; shard < slot->routes->shards(); ++shard) {
    Message message = step_message(
        slot->id, options_.trains ? std::optional(slot->rank) : std::nullopt, slot->clock);
    message.meta.mutable_embedding_lookup();
    messages.push_back({shard, std::move(message)});
  }
  ps_.call(Method::kPsEmbeddingLookup, std::move(messages), attempt(),
           [self = shared_from_this(), slot](StatusOr<std::vector<Message>> replies) {
             self->on_looked_up(slot, std::move(replies));
           });
}

void Worker::Core::on_looked_up(const SlotPtr& slot, StatusOr<std::vector<Message>> replies) {
  Status status = replies.status();
  uint64_t staleness = 0;
  if (status.ok()) {
    for (const Message& reply : *replies) {
      staleness = std::max(staleness, reply.meta.embedding_lookup_reply().staleness());
    }
    status = slot->batch->layout.take(*std::move(replies));
  }
  const MutexLock lock(mutex_);
  changed_.notify_one();
  if (status.ok()) {
    slot->batch->clock = slot->clock;
    slot->batch->rank = slot->rank;
    slot->batch->staleness = staleness;
    counts_.staleness_max = std::max(counts_.staleness_max, staleness);
    slot->state = State::kReady;
    return;
  }
  switch (reason_of(status)) {
    case v1::REASON_ALREADY_DONE:
      ++counts_.repeated;
      slot->state = State::kBare;
      return;
    case v1::REASON_UNKNOWN_BATCH:
      *known_[slot->hub].report.add_feed_again() = slot->id;
      slot->state = State::kRead;
      return;
    case v1::REASON_STALE_MAP:
      return give_back(slot);
    default:
      failure_ = status;
  }
}

// Steps that turned out to have no data for this worker.
void Worker::Core::send_ticks() {
  const std::deque<SlotPtr> slots = slots_;
  for (const SlotPtr& slot : slots) {
    if (slot->state != State::kBare) continue;
    if (options_.trains) {
      send(slot, std::vector<Message>(slot->routes->shards()));
    } else {
      *known_[slot->hub].report.add_done() = slot->id;
      forget(slot);
    }
  }
  if (is_tick_due_ && slots_.empty()) {
    is_tick_due_ = false;
    empty_step();
  }
}

void Worker::Core::empty_step() {
  auto slot = std::make_shared<Slot>();
  slot->id.set_epoch(kNoEpoch);
  slot->id.set_item(options_.rank);
  slot->id.set_number(clock_);
  slot->rank = options_.rank;
  slot->has_clock = true;
  slot->clock = clock_++;
  read_clock_ = clock_;
  slot->routes = ps_.routes();
  slots_.push_back(slot);
  ++counts_.ticks_empty;
  send(slot, std::vector<Message>(slot->routes->shards()));
}

void Worker::Core::send(const SlotPtr& slot, std::vector<Message> messages) {
  slot->state = State::kPushing;
  add_sums(slot, messages);
  std::vector<ShardMessage> sent;
  for (uint32_t shard = 0; shard < messages.size(); ++shard) {
    v1::Header* header = messages[shard].meta.mutable_header();
    *header = step_message(slot->id, slot->rank, slot->clock).meta.header();
    if (slot->group != nullptr) *header->mutable_group() = slot->group->id;
    messages[shard].meta.mutable_push_grad();
    sent.push_back({shard, std::move(messages[shard])});
  }
  ps_.call(Method::kPsPushGrad, std::move(sent), attempt(),
           [self = shared_from_this(), slot](const StatusOr<std::vector<Message>>& replies) {
             self->on_pushed(slot, replies.status());
           });
}

// The last of a group carries what all of it have merged.
void Worker::Core::add_sums(const SlotPtr& slot, std::vector<Message>& messages) {
  if (slot->group == nullptr) return;
  const std::vector<SlotPtr> members = members_of(slot);
  for (const SlotPtr& member : members) {
    if (member->state < State::kPushing || member->is_given_up) return;
  }
  for (Message& message : messages) {
    message.meta.mutable_push_grad()->set_merged(static_cast<uint32_t>(members.size()));
  }
  for (const WorkerVariable& sum : slot->group->sums) {
    const Status status =
        add_dense_grads(*slot->routes, *sum.options,
                        {.variable = sum.options->name(), .values = sum.gradient}, messages);
    if (!status.ok()) failure_ = status;
  }
}

bool Worker::Core::merge(const StepBatch& batch, const std::vector<WorkerVariable>& dense) {
  std::shared_ptr<Group> group;
  {
    const MutexLock lock(mutex_);
    group = slot_of(batch.id)->group;
  }
  if (group == nullptr) return false;
  for (size_t i = 0; i < dense.size(); ++i) {
    const std::span<const float> from = dense[i].gradient.values<float>();
    if (i == group->sums.size()) {
      Tensor sum = Tensor::allocate(DType::kFloat32, dense[i].gradient.shape());
      std::copy(from.begin(), from.end(), sum.mutable_values<float>().begin());
      group->sums.push_back({.options = dense[i].options, .gradient = std::move(sum)});
      continue;
    }
    const std::span<float> to = group->sums[i].gradient.mutable_values<float>();
    std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
  }
  return true;
}

// No batch is done before its group is.
void Worker::Core::report_pushed(const SlotPtr& slot) {
  if (slot->is_given_up) return give_back(slot);
  const std::vector<SlotPtr> members = members_of(slot);
  const bool is_whole = std::all_of(members.begin(), members.end(), [](const SlotPtr& member) {
    return member->state == State::kPushed;
  });
  if (!is_whole) return;
  for (const SlotPtr& member : members) {
    v1::ReadSampleOption& report = known_[member->hub].report;
    *(member->is_refused ? report.add_failed() : report.add_done()) = member->id;
    counts_.refused += member->is_refused ? 1 : 0;
    counts_.batches += member->is_refused ? 0 : 1;
    counts_.samples += member->is_refused ? 0 : member->samples;
    forget(member);
  }
}

void Worker::Core::on_pushed(const SlotPtr& slot, const Status& status) {
  const MutexLock lock(mutex_);
  changed_.notify_one();
  slot->state = State::kPushed;
  const bool is_empty = slot->id.epoch() == kNoEpoch;
  const v1::Reason reason = reason_of(status);
  if (reason == v1::REASON_CONTENT_REFUSED) slot->is_refused = true;
  if (status.ok() || reason == v1::REASON_ALREADY_DONE ||
      (reason == v1::REASON_CONTENT_REFUSED && !is_empty)) {
    return is_empty ? forget(slot) : report_pushed(slot);
  }
  if ((reason == v1::REASON_UNKNOWN_BATCH || reason == v1::REASON_STALE_MAP) && !is_empty) {
    return give_back(slot);
  }
  failure_ = status;
}

Worker::Worker(HubClient& hubs, Communicator& ps, WorkerOptions options)
    : core_(std::make_shared<Core>(hubs, ps, std::move(options))) {}
Worker::~Worker() = default;

StatusOr<std::unique_ptr<StepBatch>> Worker::next(Deadline deadline) {
  return core_->next(deadline);
}

Status Worker::push(std::unique_ptr<StepBatch> batch, const StepLayout::Gradients& gradients,
                    const std::vector<WorkerVariable>& dense, Deadline deadline) {
  std::vector<Message> messages = batch->layout.pushes(gradients);
  if (!core_->merge(*batch, dense)) {
    const Communicator::Routes routes = core_->routes_of(*batch);
    for (const WorkerVariable& variable : dense) {
      STARLING_RETURN_IF_ERROR(add_dense_grads(
          *routes, *variable.options,
          {.variable = variable.options->name(), .values = variable.gradient}, messages));
    }
  }
  for (Message& message : messages) {
    v1::PushGradOption* option = message.meta.mutable_push_grad();
    const auto add = [&](const std::optional<Tensor>& tensor) {
      message.tensors.push_back(*tensor);
      return static_cast<uint32_t>(message.tensors.size() - 1);
    };
    if (batch->shows.has_value()) option->set_shows_tensor(add(batch->shows));
    if (batch->clicks.has_value()) option->set_clicks_tensor(add(batch->clicks));
  }
  return core_->push(std::move(batch), std::move(messages), deadline);
}

void Worker::done(std::unique_ptr<StepBatch> batch) { core_->finish(std::move(batch), false); }
void Worker::refuse(std::unique_ptr<StepBatch> batch) { core_->finish(std::move(batch), true); }
Status Worker::flush(Deadline deadline) { return core_->flush(deadline); }
Status Worker::tick_until(uint64_t clock, Deadline deadline) {
  return core_->tick_until(clock, deadline);
}
void Worker::cancel() { core_->cancel(); }
uint64_t Worker::clock() const { return core_->clock(); }
v1::DatasetCounts Worker::dataset_counts() const { return core_->dataset_counts(); }
WorkerCounts Worker::counts() const { return core_->counts(); }

}  // namespace starling
