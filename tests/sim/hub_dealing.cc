// The part of the hub that deals batches: leases, ranks, and what a cut asks of it.
#include <algorithm>

#include "tests/sim/hub_actor.h"

namespace starling::sim {
void HubActor::on_event(const v1::Event& event) {
  if (event.has_rank()) {
    const v1::RankEvent& rank = event.rank();
    RankSeen& seen = ranks_[rank.rank()];
    seen.node = rank.node();
    if (!rank.leaves()) {
      seen.joined = rank.clock();
      seen.leaves.reset();
    } else {
      seen.leaves = rank.clock();
      if (rank.has_half_pushed()) {
        trace("rank {} left {} half pushed at clock {}", rank.rank(),
              text(from_proto(rank.half_pushed())), rank.clock() - 1);
        takeovers_.push_back({from_proto(rank.half_pushed()), rank.rank(), rank.clock() - 1});
      }
    }
  }
  if (event.has_node()) {
    const v1::NodeState state = event.node().state();
    const bool is_gone = state == v1::NODE_STATE_DEAD || state == v1::NODE_STATE_LEFT;
    if (is_gone) gone_nodes_.insert(event.node().id());
    if (!is_gone) gone_nodes_.erase(event.node().id());
  }
  if (event.has_cut()) drain(event.cut());
}

void HubActor::drain(const v1::CutEvent& cut) {
  draining_ = cut.phase() == v1::CUT_PHASE_DRAIN || cut.phase() == v1::CUT_PHASE_SNAPSHOT;
  drain_clock_.reset();
  if (cut.has_clock()) drain_clock_ = cut.clock();
  if (cut.phase() == v1::CUT_PHASE_DRAIN) {
    drained_ = false;
    has_taken_begun_ = finished_;
    if (drain_clock_ && clock_dealt_ > *drain_clock_) return report_passed(clock_dealt_);
    take_work();
    report_drained();
  }
  if (cut.phase() == v1::CUT_PHASE_SNAPSHOT) report_cut(cut.phase(), 0, {});
}

// The cut comes too late: somebody is behind its clock already. It drains anew, to a later one.
void HubActor::report_passed(uint64_t clock) {
  drained_ = true;
  v1::SaveJobOption option;
  option.mutable_save()->set_clock(clock);
  report_cut(v1::CUT_PHASE_DRAIN, 0, std::move(option));
}

bool HubActor::is_drained() const {
  if (!has_taken_begun_ || !takeovers_.empty()) return false;
  for (const auto& [number, item] : items_) {
    for (const auto& [i, batch] : item.batches) {
      if (batch.dealt && !batch.done) return false;
    }
    // The scheduler keeps its queues as part of the cut.
    const bool is_complete = item.done_below == plan_.batches_per_item;
    if (is_complete ? !item.acked : item.known_below != item.done_below) return false;
  }
  if (!drain_clock_) return true;
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    const RankSeen& seen = entry.second;
    const uint64_t until = std::min(*drain_clock_, seen.leaves.value_or(*drain_clock_));
    return seen.asked >= until || seen.joined >= until ||
           (seen.leaves && gone_nodes_.contains(seen.node));
  });
}

void HubActor::report_drained() {
  if (!draining_ || drained_) return;
  for (const auto& [rank, seen] : ranks_) {
    const bool is_behind = drain_clock_ && seen.joined > *drain_clock_;
    if (is_behind && plan_.is_synchronous()) return report_passed(seen.joined);
  }
  if (!is_drained()) return;
  drained_ = true;
  trace("is drained for cut {}", cut_id_);
  v1::SaveJobOption option;
  v1::FeedSampleOption marks;
  add_watermarks(marks);
  *option.mutable_watermarks() = marks.watermarks();
  if (drain_clock_) option.mutable_save()->set_clock(*drain_clock_);
  report_cut(v1::CUT_PHASE_DRAIN, 0, std::move(option));
}

void HubActor::receive(Arrived request) {
  if (request.method != Method::kHubReadSample) return;
  const v1::Header& header = request.message.meta.header();
  if (generation_ == 0 || header.generation() != generation_) {
    return answer(request.ticket, status_reply(unavailable("hub: not ready")));
  }
  if (request.message.meta.read_sample().batches_max() == 0) {  // deals nothing, so may be repeated
    Message reply;
    read_sample(request, *reply.meta.mutable_read_sample_reply());
    return answer(request.ticket, std::move(reply));
  }
  auto& [number, kept] = answered_[header.session()];
  if (header.number() < number) return;  // of an attempt that nobody waits for
  if (header.number() > number) {
    number = header.number();
    kept = Message();
    read_sample(request, *kept.meta.mutable_read_sample_reply());
  }
  answer(request.ticket, kept);
}

void HubActor::read_sample(const Arrived& request, v1::ReadSampleReply& reply) {
  const v1::ReadSampleOption& option = request.message.meta.read_sample();
  const v1::Header& header = request.message.meta.header();
  for (const v1::BatchId& id : option.done()) count_done(from_proto(id), header.session());
  for (const v1::BatchId& id : option.feed_again()) {
    trace("{} is to be fed again", text(from_proto(id)));
    Batch* batch = find(from_proto(id));
    // A synchronous batch keeps its place in the order; its item is taken again.
    const bool is_unknown = batch == nullptr && (finished_ || !plan_.is_synchronous());
    if (is_unknown || (batch != nullptr && batch->done)) {
      *reply.add_lost() = id;  // nobody's any more, or not this hub's
    } else if (batch != nullptr) {
      feed(from_proto(id));
    }
  }
  for (const v1::BatchId& id : option.given_back()) {
    if (Batch* batch = find(from_proto(id))) batch->lease_until = TimePoint{};
  }
  reply.set_retry_after_ms(20);
  reply.set_state(v1::DATASET_STATE_READY);
  if (option.batches_max() > 0) {
    RankSeen& seen = ranks_[header.rank()];
    seen.asked = std::max(seen.asked, header.clock());
    reply.set_state(deal(header, reply));
    report_drained();
  }
}

// READY without a batch: ask again. END_OF_EPOCH: there is none at this clock, tick without one.
v1::DatasetState HubActor::deal(const v1::Header& header, v1::ReadSampleReply& reply) {
  if (deal_takeover(header.session(), reply)) return v1::DATASET_STATE_READY;
  const bool is_paused = draining_ && drain_clock_ && header.clock() >= *drain_clock_;
  if (is_paused && header.clock() > *drain_clock_ && !drained_) report_passed(header.clock());
  if (is_paused) return v1::DATASET_STATE_PAUSED;
  if (finished_ && !draining_) {
    clock_dealt_ = std::max(clock_dealt_, header.clock() + 1);  // it ticks until it has left
    return v1::DATASET_STATE_END;
  }
  v1::DatasetState state = v1::DATASET_STATE_READY;
  if (plan_.is_synchronous()) {
    state = deal_slot(header.rank(), header.clock(), reply);
  } else if (!deal_any(reply)) {
    state = v1::DATASET_STATE_END_OF_EPOCH;
  }
  if (!reply.batches().empty() || state == v1::DATASET_STATE_END_OF_EPOCH) {
    clock_dealt_ = std::max(clock_dealt_, header.clock() + 1);
  }
  return state;
}

bool HubActor::may_deal(const BatchId& id, const Batch& batch) const {
  if (batch.done || !batch.was_fed || id.number >= items_.at(id.item).limit) return false;
  return plan_.deals_before_fed || batch.unfed.empty();
}

v1::DatasetState HubActor::deal_slot(uint32_t rank, uint64_t clock, v1::ReadSampleReply& reply) {
  if (!has_base_ && !finished_) {
    starves_ = true;
    return v1::DATASET_STATE_READY;
  }
  const uint64_t first = base_ + (clock - start_) * plan_.ranks;
  const uint64_t linear = first + rank;
  if (deal_earlier(rank, linear, reply)) return v1::DATASET_STATE_READY;
  if (linear >= plan_.batches()) {
    // Others may have batches or ticks at this clock, and wait for this rank.
    return v1::DATASET_STATE_END_OF_EPOCH;
  }
  const BatchId id = plan_.id_of(linear);
  Batch* batch = find(id);
  if (batch == nullptr) {
    starves_ = true;
    return finished_ ? v1::DATASET_STATE_END_OF_EPOCH : v1::DATASET_STATE_READY;
  }
  if (batch->done) return v1::DATASET_STATE_END_OF_EPOCH;
  if (first + plan_.ranks > window_end()) {
    send_renewal();
  } else if (may_deal(id, *batch)) {
    lease(id, *batch, reply);
  }
  return v1::DATASET_STATE_READY;
}

bool HubActor::deal_earlier(uint32_t rank, uint64_t linear, v1::ReadSampleReply& reply) {
  for (uint64_t earlier = base_ + rank; earlier < std::min(linear, plan_.batches());
       earlier += plan_.ranks) {
    const BatchId id = plan_.id_of(earlier);
    Batch* batch = find(id);
    if (batch == nullptr || !may_deal(id, *batch)) continue;
    v1::BatchLease* out = lease(id, *batch, reply);
    out->set_rank(rank);
    out->set_clock(start_ + (earlier - base_) / plan_.ranks);
    return true;
  }
  return false;
}

bool HubActor::deal_any(v1::ReadSampleReply& reply) {
  for (auto& [number, item] : items_) {
    for (auto& [i, batch] : item.batches) {
      const BatchId id{0, number, i};
      // A watermark is all that a cut keeps, so batches are begun in their order.
      if (!may_deal(id, batch) && !batch.done && !batch.dealt) return false;
      if (!may_deal(id, batch) || batch.lease_until > world().now()) continue;
      if (draining_ && !drain_clock_ && !batch.dealt) return false;
      lease(id, batch, reply);
      return true;
    }
  }
  return false;
}

bool HubActor::deal_takeover(uint64_t session, v1::ReadSampleReply& reply) {
  for (Takeover& takeover : takeovers_) {
    if (takeover.until > world().now()) continue;
    takeover.session = session;
    takeover.until = world().now() + plan_.batch_lease;
    Batch done;
    Batch* batch = find(takeover.id);
    v1::BatchLease* lease_proto = lease(takeover.id, batch == nullptr ? done : *batch, reply);
    lease_proto->set_rank(takeover.rank);
    lease_proto->set_clock(takeover.clock);
    return true;
  }
  return false;
}

v1::BatchLease* HubActor::lease(const BatchId& id, Batch& batch, v1::ReadSampleReply& reply) {
  batch.dealt = true;
  batch.lease_until = world().now() + plan_.batch_lease;
  BatchId named = id;
  if (invents_ids_ && batch.deals > 0) {
    named.number += kInvented * batch.deals;
    for (uint32_t shard = 0; shard < shards(); ++shard) send_feed(named, shard);
  }
  ++batch.deals;
  v1::BatchLease* out = reply.add_batches();
  *out->mutable_batch() = to_proto(named);
  out->set_samples(plan_.batch_keys);
  out->set_lease_ms(static_cast<uint32_t>(plan_.batch_lease / milliseconds(1)));
  out->set_step(plan_.linear_of(id));
  out->set_map_version(map_.version());
  trace("deals {}, time {}", text(named), batch.deals);
  if (id.epoch == kNoBatch) return out;
  v1::TrainerTable* table = out->add_tables();
  table->set_table(kRowsTable);
  table->set_dim(plan_.dim);
  std::map<uint32_t, uint32_t> rows;
  for (const uint64_t key : plan_.keys_of(id)) ++rows[owner_of_key(key)];
  for (const auto& [shard, count] : rows) {
    table->add_shards(shard);
    table->add_row_keys(count);
  }
  return out;
}

}  // namespace starling::sim
