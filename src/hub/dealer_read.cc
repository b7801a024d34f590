// What trainers ask of a dealer: reports, leases, and the state of the dataset.
#include <algorithm>

#include "hub/dealer.h"

namespace starling {
namespace {

Message refusal(const Status& status, v1::Reason reason = v1::REASON_NONE) {
  Message message = status_reply(status);
  message.meta.mutable_status()->set_reason(reason);
  return message;
}

// Others wait for each tick of a rank without a seat.
constexpr uint32_t kTickRetryMs = 1;

uint32_t in_ms(Duration time) { return static_cast<uint32_t>(time / milliseconds(1)); }

}  // namespace

Status Dealer::check(const Message& request) const {
  const v1::ReadSampleOption& option = request.meta.read_sample();
  const v1::Header& header = request.meta.header();
  if (option.batches_max() == 0) return absl::OkStatus();
  if (header.session() == 0 || header.number() == 0) {
    return invalid_argument("Hub.ReadSample: leases need header.session and header.number");
  }
  if (option.batches_max() < options_.group_batches) {
    return invalid_argument("Hub.ReadSample: batches_max is {}, a group has {} batches",
                            option.batches_max(), options_.group_batches);
  }
  if (header.rank() >= options_.ranks_max) {
    return invalid_argument("Hub.ReadSample: rank {} is not below {}", header.rank(),
                            options_.ranks_max);
  }
  if (!options_.is_synchronous) return absl::OkStatus();
  if (!header.has_rank()) {
    return invalid_argument("Hub.ReadSample: a synchronous dataset needs header.rank");
  }
  return absl::OkStatus();
}

Message Dealer::read(const Message& request, TimePoint now) {
  if (const Status status = check(request); !status.ok()) return refusal(status);
  const v1::Header& header = request.meta.header();
  // A report deals nothing, so it may be taken in as often as it comes.
  if (request.meta.read_sample().batches_max() == 0) return answer_now(request, now);
  Session& session = sessions_[header.session()];
  session.last = ++requests_;
  if (const auto it = session.answers.find(header.number()); it != session.answers.end()) {
    return it->second;
  }
  const bool is_old = header.number() < header.acked_below() ||
                      (!session.answers.empty() &&
                       header.number() + options_.answers_max <= session.answers.rbegin()->first);
  if (is_old) {
    return refusal(aborted("Hub.ReadSample: number {} of this session is over", header.number()));
  }
  Message reply = answer_now(request, now);
  session.answers.emplace(header.number(), reply);
  std::erase_if(session.answers,
                [&](const auto& entry) { return entry.first < header.acked_below(); });
  while (session.answers.size() > options_.answers_max) {
    session.answers.erase(session.answers.begin());
  }
  forget_sessions();
  return reply;
}

void Dealer::forget_sessions() {
  if (sessions_.size() <= options_.sessions_max) return;
  const auto oldest =
      std::min_element(sessions_.begin(), sessions_.end(),
                       [](const auto& a, const auto& b) { return a.second.last < b.second.last; });
  sessions_.erase(oldest);
}

Message Dealer::answer_now(const Message& request, TimePoint now) {
  Message reply;
  v1::ReadSampleReply* out = reply.meta.mutable_read_sample_reply();
  report(request.meta.read_sample(), request.meta.header(), now, *out);
  v1::DatasetState is = state();
  if (!failure_.ok()) {
    to_proto(failure_, reply.meta.mutable_status());
  } else if (request.meta.read_sample().batches_max() > 0) {
    is = deal(request, now, reply);
  }
  out->set_state(is);
  *out->mutable_counts() = counts_;
  if (out->batches().empty() && is != v1::DATASET_STATE_END && out->retry_after_ms() == 0) {
    out->set_retry_after_ms(in_ms(options_.retry));
  }
  return reply;
}

void Dealer::report(const v1::ReadSampleOption& option, const v1::Header& header, TimePoint now,
                    v1::ReadSampleReply& reply) {
  const uint64_t session = header.session();
  for (const v1::BatchId& proto : option.done()) {
    const BatchId id = batch_id_of(proto);
    std::erase_if(takeovers_,
                  [&](const Takeover& t) { return t.id == id && t.session == session; });
    count_done(id, false);
  }
  for (const v1::BatchId& proto : option.failed()) count_done(batch_id_of(proto), true);
  for (const v1::BatchId& proto : option.renewed()) {
    Entry* entry = entry_of(batch_id_of(proto));
    if (entry == nullptr || entry->is_done || entry->session != session) {
      *reply.add_lost() = proto;
    } else {
      entry->until = now + options_.lease;
    }
  }
  for (const v1::BatchId& proto : option.given_back()) {
    Entry* entry = entry_of(batch_id_of(proto));
    if (entry != nullptr && entry->session == session) entry->until = TimePoint{};
  }
  for (const v1::BatchId& proto : option.feed_again()) {
    const BatchId id = batch_id_of(proto);
    Entry* entry = entry_of(id);
    if (entry == nullptr || entry->is_done) {
      *reply.add_lost() = proto;
    } else {
      feeds_.push_back(id);
    }
  }
}

v1::DatasetState Dealer::state() const {
  if (!failure_.ok()) return v1::DATASET_STATE_FAILED;
  if (is_ended_) return v1::DATASET_STATE_END;
  if (is_draining_) return v1::DATASET_STATE_PAUSED;
  const bool is_read = std::all_of(items_.begin(), items_.end(), [](const auto& entry) {
    return entry.second.batches.has_value();
  });
  return is_idle_ && is_read ? v1::DATASET_STATE_END_OF_EPOCH : v1::DATASET_STATE_READY;
}

v1::DatasetState Dealer::deal(const Message& request, TimePoint now, Message& reply) {
  const v1::Header& header = request.meta.header();
  if (options_.has_clocks && header.has_rank()) {
    RankSeen& seen = ranks_[header.rank()];
    seen.asked = std::max(seen.asked, header.clock());
  }
  if (deal_takeover(request, now, reply)) return v1::DATASET_STATE_READY;
  const bool is_at_cut = drain_clock_.has_value() && header.clock() >= *drain_clock_;
  if (is_at_cut && options_.is_synchronous) {
    // The rank may have read on before it lost a batch that the cut waits for.
    return deal_earlier(request, now, reply) ? v1::DATASET_STATE_READY : v1::DATASET_STATE_PAUSED;
  }
  if (is_ended_ && !is_draining_) {
    clock_dealt_ = std::max(clock_dealt_, header.clock() + 1);  // it ticks until it has left
    return v1::DATASET_STATE_END;
  }
  const v1::DatasetState is =
      options_.is_synchronous ? deal_slot(request, now, reply) : deal_any(request, now, reply);
  const v1::ReadSampleReply& told = reply.meta.read_sample_reply();
  uint64_t ticks = told.batches_size();
  if (told.tick() || is == v1::DATASET_STATE_END_OF_EPOCH) ticks = std::max<uint64_t>(ticks, 1);
  if (ticks > 0 && header.has_rank()) {
    clock_dealt_ = std::max(clock_dealt_, header.clock() + ticks);
  }
  return is;
}

// Others cannot go on, or a cut has not its clock, until this rank ticks.
bool Dealer::waits_for(const v1::Header& header) const {
  if (!options_.has_clocks || options_.is_synchronous || !header.has_rank()) return false;
  uint64_t wanted = drain_clock_.value_or(0);
  for (const auto& [rank, seen] : ranks_) {
    if (!seen.leaves.has_value()) wanted = std::max(wanted, seen.asked);
  }
  return header.clock() < wanted;
}

// A rank with a seat makes the step at this clock, or a cut wants it.
bool Dealer::is_reached(uint64_t clock) const {
  if (drain_clock_.has_value() && clock < *drain_clock_) return true;
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    const auto& [rank, seen] = entry;
    return rank < seats_.ranks_at(clock) && !seen.leaves.has_value() && seen.asked >= clock;
  });
}

bool Dealer::may_deal(const Item& item, uint64_t number, const Entry& entry) const {
  return !entry.is_done && entry.is_fed && number < item.limit;
}

Dealer::Unit Dealer::unit_of(Item& item, uint64_t number) const {
  Unit unit;
  const uint64_t first = number / options_.group_batches * options_.group_batches;
  const uint64_t end = std::min(first + options_.group_batches, item.batches.value_or(UINT64_MAX));
  for (auto it = item.open.lower_bound(first); it != item.open.end() && it->first < end; ++it) {
    unit.emplace_back(it->first, &it->second);
  }
  const bool is_whole = !unit.empty() && unit.back().first + 1 == end;
  return is_whole ? unit : Unit();
}

v1::DatasetState Dealer::deal_any(const Message& request, TimePoint now, Message& reply) {
  const v1::Header& header = request.meta.header();
  const uint64_t most = request.meta.read_sample().batches_max();
  // Steps that the rank has to the clock of a cut. What is begun has to be done all the same: where
  // it goes beyond, the cut drains anew.
  uint64_t steps = UINT64_MAX;
  if (drain_clock_.has_value()) steps = *drain_clock_ - std::min(*drain_clock_, header.clock());
  const auto given = [&] {
    return static_cast<uint32_t>(reply.meta.read_sample_reply().batches_size());
  };
  bool is_all_out = true;  // every open batch is somebody's
  for (auto& [name, item] : items_) {
    const uint64_t size = options_.group_batches;
    for (auto it = item.open.begin(); it != item.open.end();) {
      if (given() + size > most) return v1::DATASET_STATE_READY;
      const uint64_t first = it->first;
      const Entry& entry = it->second;
      if (!entry.is_begun && given() + size > steps) break;
      const bool is_taken = entry.is_done || (entry.is_begun && entry.until > now);
      const bool was_dealt = is_taken || deal_unit(item, first, request, now, reply);
      is_all_out = is_all_out && was_dealt;
      // A watermark is all that a cut keeps, so batches are begun in their order.
      if (!was_dealt && !entry.is_begun) break;
      it = item.open.lower_bound(first / size * size + size);
    }
  }
  if (given() > 0) return v1::DATASET_STATE_READY;
  if (is_all_out && waits_for(header)) reply.meta.mutable_read_sample_reply()->set_tick(true);
  if (is_draining_) return v1::DATASET_STATE_PAUSED;
  return is_all_out ? state() : v1::DATASET_STATE_READY;
}

bool Dealer::deal_unit(Item& item, uint64_t number, const Message& request, TimePoint now,
                       Message& reply) {
  const Unit unit = unit_of(item, number);
  if (unit.empty()) return false;
  const bool is_begun = unit.front().second->is_begun;
  // While a cut drains only what is begun goes on; synchronous jobs go on to the cut's clock.
  if (is_draining_ && !drain_clock_.has_value() && !is_begun) return false;
  for (const auto& [at, entry] : unit) {
    if (!may_deal(item, at, *entry) || entry->until > now) return false;
  }
  for (const auto& [at, entry] : unit) {
    v1::BatchLease* out = lease(*entry, request.meta.header(), now, reply);
    if (options_.group_batches > 1) to_proto(unit.front().second->batch.id, out->mutable_group());
  }
  return true;
}

v1::DatasetState Dealer::deal_slot(const Message& request, TimePoint now, Message& reply) {
  const v1::Header& header = request.meta.header();
  if (deal_earlier(request, now, reply)) return v1::DATASET_STATE_READY;
  // The row was dealt in a former epoch; the tick alone is missing.
  if (header.clock() < epoch_.clock) return v1::DATASET_STATE_END_OF_EPOCH;
  const uint32_t ranks = seats_.ranks_at(header.clock());
  if (header.rank() >= ranks) {
    // It has joined, and has its share from the next cut on; until then others wait for its ticks.
    v1::ReadSampleReply* out = reply.meta.mutable_read_sample_reply();
    out->set_tick(is_reached(header.clock()));
    out->set_retry_after_ms(kTickRetryMs);
    return v1::DATASET_STATE_READY;
  }
  const uint64_t first = first_of_row(header.clock());
  const uint64_t linear = first + header.rank();
  if (epoch_end_.has_value() && linear >= *epoch_end_) {
    // The last row is not full, or a cut wants a clock behind the end and the hubs have agreed that
    // the next epoch begins there.
    const bool is_wanted = first < *epoch_end_ || header.clock() < next_clock_ ||
                           (is_ended_ && drain_clock_.has_value());
    return is_wanted ? v1::DATASET_STATE_END_OF_EPOCH : v1::DATASET_STATE_READY;
  }
  for (auto& [name, item] : items_) {
    if (name.epoch != epoch_.epoch || !item.base.has_value() || linear < *item.base) continue;
    const uint64_t number = linear - *item.base;
    if (item.batches.has_value() && number >= *item.batches) continue;
    if (number < item.done_below) return v1::DATASET_STATE_END_OF_EPOCH;
    const auto it = item.open.find(number);
    if (it == item.open.end()) continue;
    if (it->second.is_done) return v1::DATASET_STATE_END_OF_EPOCH;
    // Who takes the item over must have room for the whole row.
    if (first + ranks > first_untold() + options_.window) break;
    // The rank is the asker's: whoever had the batch before under this rank is gone.
    if (may_deal(item, number, it->second)) lease(it->second, header, now, reply);
    return v1::DATASET_STATE_READY;
  }
  return v1::DATASET_STATE_READY;
}

// A batch of the rank that was to be trained at an earlier clock and was never reported.
bool Dealer::deal_earlier(const Message& request, TimePoint now, Message& reply) {
  const v1::Header& header = request.meta.header();
  const uint64_t end = std::min(header.clock(), drain_clock_.value_or(UINT64_MAX));
  for (auto& [name, item] : items_) {
    if (name.epoch != epoch_.epoch || !item.base.has_value()) continue;
    for (auto& [number, entry] : item.open) {
      const uint64_t linear = *item.base + number;
      if (linear < epoch_.linear) continue;
      const auto [clock, rank] = seats_.place(epoch_.clock, linear - epoch_.linear);
      if (clock >= end) return false;
      if (rank != header.rank()) continue;
      // Its holder may ask ahead while it trains.
      if (entry.is_done || (entry.session == header.session() && entry.until > now)) continue;
      if (!may_deal(item, number, entry)) return true;
      v1::BatchLease* out = lease(entry, header, now, reply);
      out->set_rank(header.rank());
      out->set_clock(clock);
      return true;
    }
  }
  return false;
}

bool Dealer::deal_takeover(const Message& request, TimePoint now, Message& reply) {
  const v1::Header& header = request.meta.header();
  for (Takeover& takeover : takeovers_) {
    if (takeover.until > now) continue;
    Entry done;
    done.batch.id = takeover.id;
    Entry* entry = entry_of(takeover.id);
    if (entry != nullptr && !entry->is_fed) continue;
    takeover.session = header.session();
    takeover.until = now + options_.lease;
    v1::BatchLease* out = lease(entry == nullptr ? done : *entry, header, now, reply);
    out->set_rank(takeover.rank);
    out->set_clock(takeover.clock);
    return true;
  }
  return false;
}

v1::BatchLease* Dealer::lease(Entry& entry, const v1::Header& header, TimePoint now,
                              Message& reply) {
  if (entry.session == 0) {
    counts_.set_batches_dealt(counts_.batches_dealt() + 1);
  } else {
    counts_.set_batches_again(counts_.batches_again() + 1);
  }
  entry.is_begun = true;
  // Of a group that is dealt again no member has been pushed under this lease.
  entry.is_reported = false;
  entry.until = now + options_.lease;
  entry.session = header.session();
  entry.node = header.role_id();
  v1::BatchLease* out = reply.meta.mutable_read_sample_reply()->add_batches();
  *out = entry.batch.lease;
  to_proto(entry.batch.id, out->mutable_batch());
  out->set_lease_ms(in_ms(options_.lease));
  shift_tensors(*out, static_cast<uint32_t>(reply.tensors.size()));
  reply.tensors.insert(reply.tensors.end(), entry.batch.tensors.begin(), entry.batch.tensors.end());
  return out;
}

}  // namespace starling
