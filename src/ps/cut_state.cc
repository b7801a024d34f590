// What a shard knows beside rows and variables, to and from a cut.
#include "ps/checkpoint.pb.h"
#include "ps/cut_restore.h"
#include "ps/shard.h"

namespace starling {
namespace {

void put(const Status& status, ckpt::Outcome* out) {
  if (status.ok()) return;
  out->set_code(static_cast<int>(status.code()));
  out->set_message(std::string(message_of(status)));
}

Status status_of(const ckpt::Outcome& outcome) {
  return Status(static_cast<StatusCode>(outcome.code()), outcome.message());
}

void put(const RankClocks& clocks, ckpt::ShardState& out) {
  for (const auto& [rank, state] : clocks.all()) {
    ckpt::Clock* clock = out.add_clocks();
    clock->set_rank(value(rank));
    clock->set_clock(state.clock);
    clock->set_joined(state.joined);
    if (state.leaves.has_value()) clock->set_leaves(*state.leaves);
    for (const uint64_t step : state.ahead) clock->add_ahead(step);
  }
}

void put(const AppliedBatches& batches, ckpt::ShardState& out) {
  for (const AppliedBatches::Watermark& mark : batches.watermarks()) {
    v1::Watermark* one = out.add_watermarks();
    one->set_epoch(mark.epoch);
    one->set_item(mark.item);
    one->set_done_below(mark.done_below);
    one->set_finished(mark.finished);
  }
  for (const AppliedBatches::Part& part : batches.parts()) {
    ckpt::AppliedPart* one = out.add_parts();
    one->mutable_batch()->set_epoch(part.batch.epoch);
    one->mutable_batch()->set_item(part.batch.item);
    one->mutable_batch()->set_number(part.batch.number);
    one->set_part(part.part);
    if (!part.outcome.ok()) put(part.outcome, one->mutable_outcome());
  }
}

void put(const AppliedNumbers& numbers, ckpt::ShardState& out) {
  for (const auto& [id, session] : numbers.all()) {
    ckpt::Session* one = out.add_sessions();
    one->set_session(id);
    one->set_acked_below(session.acked_below);
    for (const auto& [number, record] : session.applied) {
      ckpt::Applied* applied = one->add_applied();
      applied->set_number(number);
      applied->set_content_hash(record.content_hash);
      if (!record.outcome.ok()) put(record.outcome, applied->mutable_outcome());
    }
  }
  for (const uint64_t session : numbers.fences()) out.add_fenced(session);
}

AppliedNumbers numbers_of(const ckpt::ShardState& state) {
  AppliedNumbers numbers;
  for (const ckpt::Session& session : state.sessions()) {
    AppliedNumbers::Session one{.acked_below = session.acked_below()};
    for (const ckpt::Applied& applied : session.applied()) {
      one.applied.emplace(applied.number(), AppliedNumbers::Record{applied.content_hash(),
                                                                   status_of(applied.outcome())});
    }
    numbers.restore(session.session(), std::move(one));
  }
  for (const uint64_t session : state.fenced()) numbers.fence(session);
  return numbers;
}

AppliedBatches batches_of(const ckpt::ShardState& state) {
  AppliedBatches batches;
  for (const v1::Watermark& mark : state.watermarks()) {
    // A cut has no more items than a shard may have.
    (void)batches.raise(mark.epoch(), mark.item(), mark.done_below(), mark.finished());
  }
  for (const ckpt::AppliedPart& part : state.parts()) {
    batches.record({part.batch().epoch(), part.batch().item(), part.batch().number()}, part.part(),
                   status_of(part.outcome()));
  }
  return batches;
}

}  // namespace

void Shard::save_state(ckpt::ShardState& out) const {
  v1::CreateOption* schema = out.mutable_schema();
  for (const auto& [name, table] : schema_.tables()) *schema->add_tables() = table;
  for (const auto& [name, variable] : schema_.variables()) *schema->add_variables() = variable;
  schema->set_seed(schema_.seed());
  out.set_schema_hash(schema_.hash());
  out.set_step(step_);
  out.set_generation(options_.generation);
  put(clocks_, out);
  put(batches_, out);
  put(numbers_, out);
  for (ckpt::Session& session : *out.mutable_sessions()) {
    const auto owner = session_owners_.find(session.session());
    if (owner == session_owners_.end()) continue;
    session.set_node(value(owner->second.first));
    session.set_incarnation(value(owner->second.second));
  }
  for (const auto& [name, counts] : part_counts_) {
    if (counts.last_step == 0) continue;
    ckpt::TableStep* step = out.add_table_steps();
    step->set_table(name);
    step->set_step(counts.last_step);
  }
}

void Shard::adopt(RestoredShard restored, uint64_t generation) {
  if (generation > options_.generation) begin_generation(generation);
  // Hints into old rows are worth nothing now.
  drop_requests(aborted("the shard went back to cut {}", restored.cut_id), v1::REASON_NONE);
  for (auto& [name, table] : restored.tables) tables_[name] = std::move(table);
  for (auto& [name, variable] : restored.variables) variables_[name] = std::move(variable);
  if (!restored.state.has_value()) return;
  const ckpt::ShardState& state = *restored.state;
  step_ = state.step();
  numbers_ = numbers_of(state);
  batches_ = batches_of(state);
  session_owners_.clear();
  for (const ckpt::Session& session : state.sessions()) {
    if (session.incarnation() == 0) continue;
    session_owners_[session.session()] = {static_cast<NodeId>(session.node()),
                                          static_cast<Incarnation>(session.incarnation())};
  }
  for (const ckpt::TableStep& step : state.table_steps()) {
    part_counts_[step.table()].last_step = step.step();
  }
}

}  // namespace starling
