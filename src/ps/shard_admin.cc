// Administration: heartbeat, shrink, clear, counters and the global step.
#include <algorithm>

#include "ps/shard.h"

namespace starling {
namespace {

constexpr uint32_t kHottestMax = 100;

}  // namespace

void Shard::on(MethodTag<Method::kPsSave>, Call& call) { host_.save(*this, call); }

// It may come with a generation of which the scheduler's word has not arrived yet.
void Shard::on(MethodTag<Method::kPsRestore>, Call& call) {
  v1::Header header = call.request.meta.header();
  header.set_generation(std::min(header.generation(), options_.generation));
  if (Refusal refusal = check_header(header, false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (Refusal refusal = check_map(header); !refusal.status.ok()) return refuse(call.token, refusal);
  host_.restore(*this, call);
}

void Shard::on(MethodTag<Method::kPsStop>, Call& call) {
  if (Refusal refusal = check_header(call.request.meta.header(), false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  host_.stop(*this, call);
}

void Shard::on(MethodTag<Method::kPsProfile>, Call& call) { host_.profile(*this, call); }

void Shard::on(MethodTag<Method::kPsHeartbeat>, Call& call) {
  Message reply;
  auto* beat = reply.meta.mutable_ps_heartbeat_reply();
  beat->set_incarnation(value(options_.incarnation));
  beat->set_generation(options_.generation);
  beat->set_ready(frozen_);
  beat->set_frozen(frozen_);
  beat->set_map_version(routes_.version());
  beat->set_queued_requests(host_.open_requests());
  beat->set_waiting_lookups(static_cast<uint32_t>(waiting_.size()));
  uint32_t staged = 0;
  for (const auto& [clock, ranks] : staged_) staged += static_cast<uint32_t>(ranks.size());
  beat->set_staged_pushes(staged);
  beat->set_staged_bytes(staged_bytes_);
  beat->set_prepared_batches(static_cast<uint32_t>(prepared_.size()));
  beat->set_memory_bytes(memory_bytes());
  beat->set_memory_bytes_max(options_.memory_bytes_max);
  for (const auto& [rank, state] : clocks_.all()) {
    v1::RankClock* clock = beat->add_clocks();
    clock->set_rank(value(rank));
    clock->set_clock(state.clock);
  }
  answer(call.token, std::move(reply));
}

// The tables that a list of names means; all of them when it is empty. NotFound names the first
// that is no table.
StatusOr<std::vector<Table*>> Shard::tables_of(
    const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::vector<Table*> out;
  if (names.empty()) {
    for (const auto& [name, table] : tables_) out.push_back(table.get());
  }
  for (const std::string& name : names) {
    auto it = tables_.find(name);
    if (it == tables_.end()) return not_found("no table named {}", name);
    out.push_back(it->second.get());
  }
  return out;
}

void Shard::on(MethodTag<Method::kPsShrink>, Call& call) {
  if (Refusal refusal = check_trainable(call.request.meta.header(), false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (!staged_.empty()) {
    return refuse(call.token,
                  failed_precondition("a synchronous step is half pushed; shrink at a cut"));
  }
  AppliedNumbers::Operation operation;
  if (!begin_numbered(call, operation)) return;
  const auto tables = tables_of(call.request.meta.shrink().names());
  if (!tables.ok()) return refuse(call.token, tables.status());
  Message reply;
  for (Table* table : *tables) {
    const auto before = table->counts().evicted;
    table->shrink(part_counts_[table->options().name].last_step);
    table->compact();
    const auto after = table->counts().evicted;
    for (size_t reason = 0; reason < kEvictionReasons; ++reason) {
      if (after[reason] == before[reason]) continue;
      v1::TableCount* count = reply.meta.mutable_shrink_reply()->add_evicted();
      count->set_table(table->options().name);
      count->set_reason(std::string(reason_name(static_cast<EvictionReason>(reason))));
      count->set_rows(after[reason] - before[reason]);
    }
  }
  reply.meta.mutable_shrink_reply();
  numbers_.record(operation);
  answer(call.token, std::move(reply));
}

void Shard::on(MethodTag<Method::kPsClear>, Call& call) {
  if (Refusal refusal = check_trainable(call.request.meta.header(), false); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  const v1::ClearOption& option = call.request.meta.clear();
  if (option.names().empty() && !option.all())
    return refuse(call.token, invalid_argument("clear needs names, or all"));
  for (const std::string& name : option.names()) {
    if (!tables_.contains(name) && !variables_.contains(name)) {
      return refuse(call.token, not_found("no table or variable named {}", name));
    }
  }
  AppliedNumbers::Operation operation;
  if (!begin_numbered(call, operation)) return;
  const auto wanted = [&](const std::string& name) {
    return option.names().empty() ||
           std::find(option.names().begin(), option.names().end(), name) != option.names().end();
  };
  for (const auto& [name, table] : tables_) {
    if (wanted(name)) table->clear();
  }
  for (const auto& [name, variable] : variables_) {
    if (wanted(name)) variable->clear();
  }
  numbers_.record(operation);
  answer_ok(call.token);
}

void Shard::on(MethodTag<Method::kPsStat>, Call& call) {
  const v1::StatOption& option = call.request.meta.stat();
  for (const std::string& name : option.names()) {
    if (tables_.contains(name) || variables_.contains(name)) continue;
    return refuse(call.token, not_found("no table or variable named {}", name));
  }
  Message reply;
  auto* stat = reply.meta.mutable_stat_reply();
  const auto wanted = [&](const std::string& name) {
    return option.names().empty() ||
           std::find(option.names().begin(), option.names().end(), name) != option.names().end();
  };
  for (const auto& [name, table] : tables_) {
    if (wanted(name)) describe(*table, option, *stat->add_tables());
  }
  for (const auto& [name, variable] : variables_) {
    if (wanted(name)) variable->describe(*stat->add_tables());
  }
  stat->set_step(step_);
  stat->set_memory_bytes(memory_bytes());
  stat->set_feeds(counts_.feeds);
  stat->set_prepared_batches(prepared_.size());
  uint64_t probes = 0;
  for (const auto& [name, table] : tables_) probes += table->counts().lookups.probed;
  stat->set_index_probes(probes);
  stat->set_repeats(counts_.repeats);
  stat->set_staleness_max(counts_.staleness_max);
  if (option.with_latencies()) host_.describe_rpcs(*stat);
  answer(call.token, std::move(reply));
}

void Shard::describe(const Table& table, const v1::StatOption& option, v1::TableStat& out) {
  const std::string& name = table.options().name;
  const TableCounts counts = table.counts();
  const PartCounts& part = part_counts_[name];
  out.set_name(name);
  out.set_rows(counts.rows);
  out.set_bytes(table.memory_bytes());
  out.set_lookups(part.lookups);
  out.set_misses(part.misses);
  out.set_pushes(part.pushes);
  out.set_admitted(counts.total.created);
  out.set_refused(counts.total.dropped);
  out.set_bad_rows(counts.total.nonfinite);
  for (size_t reason = 0; reason < kEvictionReasons; ++reason) {
    if (counts.evicted[reason] == 0) continue;
    v1::TableCount* evicted = out.add_evicted();
    evicted->set_table(name);
    evicted->set_reason(std::string(reason_name(static_cast<EvictionReason>(reason))));
    evicted->set_rows(counts.evicted[reason]);
  }
  const uint32_t hottest_max =
      std::min(option.hottest_max() == 0 ? 20 : option.hottest_max(), kHottestMax);
  for (const HotKeys::Entry& entry : part.hot.top(hottest_max)) {
    v1::HotKey* hot = out.add_hottest();
    hot->set_key(value(entry.key));
    hot->set_uses(entry.uses);
  }
  const auto& list = table.evicted().entries();
  const size_t listed = std::min<size_t>(option.evicted_list_max(), list.size());
  for (size_t i = 0; i < listed; ++i) out.add_evicted_keys(value(list[list.size() - 1 - i].key));
}

void Shard::on(MethodTag<Method::kPsStep>, Call& call) {
  const v1::StepOption& option = call.request.meta.step();
  if (Refusal refusal = check_header(call.request.meta.header(), !option.has_set());
      !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (option.has_set()) {
    AppliedNumbers::Operation operation = operation_of(call.request);
    const StatusOr<Seen> seen = numbers_.check(operation);
    if (!seen.ok()) return refuse(call.token, seen.status(), reason_of(seen.status(), operation));
    if (*seen == Seen::kNew) {
      step_ = option.set();
      numbers_.record(operation);
    }
  }
  Message reply;
  reply.meta.mutable_step_reply()->set_step(step_);
  answer(call.token, std::move(reply));
}

}  // namespace starling
