#include "tests/sim/ps_actor.h"

#include <algorithm>
#include <thread>

#include "ps/cut_restore.h"

namespace starling::sim {

class PsActor::Host final : public ShardHost {
 public:
  explicit Host(PsActor& ps) : ps_(ps) {}

  void save(Shard& shard, ShardCall& call) override { none(shard, call); }
  void restore(Shard& shard, ShardCall& call) override {
    // As CutKeeper does: a late copy takes nothing back.
    if (shard.frozen()) {
      return shard.refuse(call.token, failed_precondition("frozen"), v1::REASON_FROZEN);
    }
    RestoreTarget target;
    target.schema = shard.schema();
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      target.owns.push_back(shard.owns_bucket(bucket) ? 1 : 0);
    }
    StatusOr<RestoredShard> read =
        restore_shard(*ps_.stage_.vault.files, call.request.meta.restore(), target);
    if (!read.ok()) return shard.refuse(call.token, read.status());
    shard.adopt(*std::move(read), call.request.meta.header().generation());
    shard.answer(call.token, Message());
  }
  void stop(Shard& shard, ShardCall& call) override { none(shard, call); }
  void profile(Shard& shard, ShardCall& call) override { none(shard, call); }
  void describe_rpcs(v1::StatReply&) override {}

 private:
  static void none(Shard& shard, ShardCall& call) {
    shard.refuse(call.token, unimplemented("not in a simulation"));
  }
  PsActor& ps_;
};

PsActor::PsActor(Network& network, const Plan& plan, uint32_t number, Stage& stage)
    : Node(network, plan, v1::ROLE_PS, fmt::format("ps-{}", number)),
      lanes_planned_(plan.lanes[number]),
      stage_(stage) {}

PsActor::~PsActor() = default;

void PsActor::on_crash() { lanes_.clear(); }

void PsActor::on_start() {
  lanes_.clear();
  Node::on_start();
}

void PsActor::fill_register(v1::RegisterOption& option) {
  option.set_lanes(lanes_planned_);
  option.set_empty(true);
}

void PsActor::on_registered(const v1::RegisterReply& reply) {
  for (uint32_t i = 0; i < lanes_planned_; ++i) {
    ShardOptions options;
    options.node = static_cast<NodeId>(id_);
    options.lane = static_cast<LaneId>(i);
    options.incarnation = static_cast<Incarnation>(incarnation_);
    options.generation = generation_;
    Lane& lane = lanes_.emplace_back();
    lane.host = std::make_unique<Host>(*this);
    lane.shard = std::make_unique<Shard>(options, *lane.host);
    // Slices of a row or two, so that training comes in between.
    lane.saver = std::make_unique<CutSaver>(*lane.shard, *stage_.vault.files, stage_.vault.clock,
                                            CutSaverOptions{.slice_bytes = 64});
  }
  if (!reply.has_map()) return;
  v1::Event event;
  *event.mutable_map() = reply.map();
  for (uint32_t i = 0; i < lanes_.size(); ++i) tell(i, event);
}

void PsActor::receive(Arrived request) {
  if (request.lane >= lanes_.size() || lanes_[request.lane].shard->routes().empty()) {
    return answer(request.ticket, status_reply(unavailable("{} has no map yet", name())));
  }
  Lane& lane = lanes_[request.lane];
  const Token token{++tokens_};
  lane.open[token] = {request.ticket, request.method, request.message};
  lane.shard->handle(request.method, std::move(request.message), token, request.deadline,
                     world().now());
  flush(request.lane);
}

void PsActor::flush(uint32_t number) {
  Lane& lane = lanes_[number];
  for (Shard::Output& output : lane.shard->take_outputs()) {
    auto it = lane.open.find(output.token);
    if (it == lane.open.end()) {
      world().fail("{} answered one request twice", lane_name(number));
      continue;
    }
    const Open open = std::move(it->second);
    lane.open.erase(it);
    witness(number, open, output.reply);
    answer(open.ticket, std::move(output.reply));
  }
  lane.saver->advance(/*is_idle=*/false);
  arm(number);
}

void PsActor::arm(uint32_t number) {
  Lane& lane = lanes_[number];
  const TimePoint wake = lane.shard->next_wake();
  if (wake == TimePoint::max()) return;
  after(std::max(wake - world().now(), Duration(0)), [this, number, arms = ++lane.arms] {
    if (lanes_[number].arms != arms) return;
    lanes_[number].shard->tick(world().now());
    flush(number);
  });
}

void PsActor::witness(uint32_t number, const Open& open, const Message& reply) {
  const Status status = status_of(reply);
  const v1::Header& header = open.request.meta.header();
  const std::string name = lane_name(number);
  if (world().traces()) {
    world().trace(name, "{} of node {} batch {} rank {} clock {} number {}: {}",
                  info_of(open.method).name, header.role_id(), text(from_proto(header.batch())),
                  header.rank(), header.clock(), header.number(), status.ToString());
  }
  if (!status.ok()) return;
  if (open.method == Method::kPsFreeze && lanes_[number].bounds.empty()) {
    v1::StalenessEvent first;
    const v1::FreezeOption& option = open.request.meta.freeze();
    if (option.has_staleness()) first.set_staleness(option.staleness());
    witness_staleness(lanes_[number], first);
  } else if (open.method == Method::kPsShrink || open.method == Method::kPsClear) {
    const Shard& shard = *lanes_[number].shard;
    stage_.oracle.upkept(name, open.request, [&shard](uint64_t key) {
      return shard.owns_bucket(bucket_bits(mixed_hash(Key{key})));
    });
  }
  if (open.method == Method::kPsPushGrad && header.has_batch()) {
    witness_push(lanes_[number], name, open);
  } else if (open.method == Method::kPsPushGrad || open.method == Method::kPsPush) {
    stage_.oracle.keys_acknowledged(name, open.request);
  } else if (open.method == Method::kPsEmbeddingLookup) {
    witness_lookup(lanes_[number], name, open);
  }
}

void PsActor::witness_push(Lane& lane, const std::string&, const Open& open) {
  const v1::Header& header = open.request.meta.header();
  const auto rank = static_cast<Rank>(header.rank());
  lane.ticks[rank].insert(header.clock());
  v1::RankBatch& newest = lane.newest[rank];
  if (header.clock() + 1 >= newest.clock()) {
    newest.set_rank(header.rank());
    newest.set_clock(header.clock() + 1);
    *newest.mutable_batch() = header.batch();
  }
}

uint64_t PsActor::clock_of(const Lane& lane, Rank rank) {
  const auto told = lane.told.find(rank);
  uint64_t clock = told == lane.told.end() ? 0 : told->second.joined;
  const auto ticks = lane.ticks.find(rank);
  if (ticks == lane.ticks.end()) return clock;
  while (ticks->second.contains(clock)) ++clock;
  return clock;
}

std::optional<uint32_t> PsActor::bound_at(const Lane& lane, uint64_t clock) {
  auto it = lane.bounds.upper_bound(clock);
  if (lane.bounds.empty()) return std::nullopt;
  return it == lane.bounds.begin() ? it->second : std::prev(it)->second;
}

void PsActor::witness_staleness(Lane& lane, const v1::StalenessEvent& event) {
  if (event.has_withdrawn_clock()) lane.bounds.erase(event.withdrawn_clock());
  bool is_past = false;
  for (const auto& [rank, told] : lane.told) {
    const uint64_t clock = clock_of(lane, rank);
    is_past |= clock > event.clock() && !(told.leaves && clock >= *told.leaves);
  }
  if (is_past && event.clock() > 0 && !event.settled()) return;
  lane.bounds.erase(lane.bounds.lower_bound(event.clock()), lane.bounds.end());
  lane.bounds[event.clock()] =
      event.has_staleness() ? std::optional(event.staleness()) : std::nullopt;
}

void PsActor::witness_lookup(const Lane& lane, const std::string& name, const Open& open) {
  const v1::Header& header = open.request.meta.header();
  const std::optional<uint32_t> bound = bound_at(lane, header.clock());
  if (!bound || header.clock() <= *bound) return;
  const uint64_t needed = header.clock() - *bound;
  for (const auto& [rank, told] : lane.told) {
    const uint64_t clock = clock_of(lane, rank);
    if (clock >= needed || (told.leaves && clock >= *told.leaves)) continue;
    return world().fail(
        "{} answered a lookup at clock {} with staleness {} while rank {} was at {}", name,
        header.clock(), *bound, value(rank), clock);
  }
}

void PsActor::tell(uint32_t number, const v1::Event& event) {
  Lane& lane = lanes_[number];
  if (event.has_rank()) {
    const auto rank = static_cast<Rank>(event.rank().rank());
    if (!event.rank().leaves()) {
      const uint64_t clock = std::max(clock_of(lane, rank), event.rank().clock());
      lane.told[rank] = {.joined = clock};
    } else if (lane.told.contains(rank)) {
      // Without lock step nobody waits for the tick that a dead rank left half done.
      const bool is_over = event.rank().has_half_pushed() && !plan_.is_synchronous();
      const uint64_t clock = event.rank().clock();
      lane.told[rank].leaves = is_over ? std::min(clock, clock_of(lane, rank)) : clock;
    }
  }
  if (event.has_staleness()) witness_staleness(lane, event.staleness());
  lane.shard->on_event(event);
  flush(number);
}

void PsActor::on_event(const v1::Event& event) {
  for (uint32_t i = 0; i < lanes_.size(); ++i) tell(i, event);
  if (event.has_cut()) on_cut(event.cut());
}

void PsActor::on_cut(const v1::CutEvent& cut) {
  if (cut.phase() == v1::CUT_PHASE_SNAPSHOT) snapshot(cut.cut_id(), cut);
  if (cut.phase() == v1::CUT_PHASE_WRITE) write(cut.cut_id());
  if (cut.phase() == v1::CUT_PHASE_COMMITTED) settle(cut.cut_id(), 0);
  if (cut.phase() == v1::CUT_PHASE_FAILED) settle(0, 0);
}

// The files are written by a thread; simulated time stands still until it is done.
void PsActor::write(uint64_t cut_id) {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    CutSaver& saver = *lanes_[i].saver;
    StatusOr<v1::SaveReply> written = saver.progress(cut_id);
    while (written.ok() && !written->done()) {
      if (!saver.advance(/*is_idle=*/true)) std::this_thread::sleep_for(microseconds(50));
      written = saver.progress(cut_id);
    }
    v1::SaveJobOption option;
    if (written.ok()) *option.mutable_written() = *written;
    if (!written.ok()) option.set_error(written.status().ToString());
    report_cut(v1::CUT_PHASE_WRITE, i, std::move(option));
  }
}

void PsActor::settle(uint64_t newest_cut, uint64_t running) {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.saving == 0 || lane.saving == running) continue;
    if (lane.saving != newest_cut) {
      lane.saver->cancel(lane.saving);
    } else if (const Status status = lane.saver->commit(lane.saving); !status.ok()) {
      world().fail("{}: cut {} may not be committed: {}", lane_name(i), newest_cut,
                   status.ToString());
    }
    lane.saving = 0;
  }
}

// Ranks that the whole state does not name have left while this node did not hear it.
void PsActor::on_whole(const v1::WatchReply& reply) {
  std::set<uint32_t> named;
  uint64_t newest_cut = 0;
  uint64_t running = 0;
  for (const v1::Event& event : reply.events()) {
    if (event.has_rank()) named.insert(event.rank().rank());
    if (event.has_job()) newest_cut = event.job().newest_cut();
    if (event.has_cut()) running = event.cut().cut_id();
  }
  settle(newest_cut, running);
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    std::vector<v1::Event> leaves;
    for (const auto& [rank, state] : lanes_[i].shard->clocks().all()) {
      if (named.contains(value(rank))) continue;
      v1::RankEvent* leave = leaves.emplace_back().mutable_rank();
      leave->set_rank(value(rank));
      leave->set_leaves(true);
      leave->set_clock(state.clock);
    }
    for (const v1::Event& leave : leaves) tell(i, leave);
  }
}

void PsActor::snapshot(uint64_t cut_id, const v1::CutEvent& cut) {
  Vault::Cut& kept = stage_.vault.cuts[cut_id];
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!kept.lanes.insert({id_, i}).second) continue;
    trace("lane {} holds cut {}", i, cut_id);
    for (const auto& [rank, told] : lane.told) {
      const uint64_t clock = clock_of(lane, rank);
      // Who joins behind the cut's clock has trained nothing of it; who has left at the first word
      // of it takes no part, though the leave was put off for others.
      const bool has_joined = told.joined <= cut.clock();
      const bool has_left = told.leaves && !lane.shard->clocks().active(rank);
      const bool is_member = has_joined && !has_left && (!told.leaves || clock < *told.leaves);
      // Without lock step the clock only says when to stop dealing; the oracle looks at the rows.
      if (plan_.is_synchronous() && cut.has_clock() && is_member && clock != cut.clock()) {
        kept.complaint = fmt::format("{}: cut {} is at clock {}, rank {} is at {}", lane_name(i),
                                     cut_id, cut.clock(), value(rank), clock);
      }
    }
    if (const Status status = lane.saver->begin(cut.save()); !status.ok()) {
      trace("lane {}: {}", i, status.ToString());
      v1::SaveJobOption option;
      option.set_error(status.ToString());
      report_cut(v1::CUT_PHASE_SNAPSHOT, i, std::move(option));
      continue;
    }
    lane.saving = cut_id;
    kept.image.add(*lane.shard);
    for (const auto& [key, row] : stage_.oracle.client_rows()) {
      if (lane.shard->owns_bucket(bucket_bits(mixed_hash(Key{key})))) kept.client_rows[key] = row;
    }
    report_cut(v1::CUT_PHASE_SNAPSHOT, i, {});
  }
}

void PsActor::fill_beat(v1::SchedulerHeartbeatOption& option) {
  option.set_seen_revision(revision_);
  for (Lane& lane : lanes_) {
    for (const auto& [rank, state] : lane.shard->clocks().all()) {
      v1::RankClock* clock = option.add_clocks();
      clock->set_rank(value(rank));
      clock->set_clock(state.clock);
    }
    for (const auto& [rank, last] : lane.shard->clocks().left()) {
      v1::RankClock* clock = option.add_clocks();
      clock->set_rank(value(rank));
      clock->set_clock(last);
    }
    for (const auto& [rank, batch] : lane.newest) {
      bool is_newest = true;
      for (v1::RankBatch& known : *option.mutable_batches()) {
        if (known.rank() != batch.rank()) continue;
        if (known.clock() < batch.clock()) known = batch;
        is_newest = false;
      }
      if (is_newest) *option.add_batches() = batch;
    }
  }
}

void PsActor::collect(Image& image) {
  for (Lane& lane : lanes_) image.add(*lane.shard);
}

void PsActor::check_nobody_waits() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    for (const auto& [token, open] : lanes_[i].open) {
      const v1::Header& header = open.request.meta.header();
      world().fail("{}: {} of node {} (batch {}, rank {}, clock {}) waits for ever", lane_name(i),
                   info_of(open.method).name, header.role_id(), text(from_proto(header.batch())),
                   header.rank(), header.clock());
    }
  }
}

}  // namespace starling::sim
