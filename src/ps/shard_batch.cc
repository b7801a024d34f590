// Feeds and lookups: they hash, probe and gather, and change nothing that an operation would see.
#include <algorithm>

#include "ps/reply.h"
#include "ps/shard.h"

namespace starling {
namespace {

constexpr uint32_t kWindow = 64;

BatchId batch_of(const v1::Header& header) {
  const v1::BatchId& id = header.batch();
  return {.epoch = id.epoch(), .item = id.item(), .number = id.number()};
}

std::string text(const BatchId& id) {
  return fmt::format("{}/{}/{}", id.epoch, id.item, id.number);
}

}  // namespace

Shard::Refusal Shard::check_feed(const PreparedBatch& batch) const {
  for (const PreparedPart& part : batch.parts) {
    auto it = tables_.find(part.table);
    if (it == tables_.end()) return {not_found("no table named {}", part.table)};
    Refusal refusal = check_keys(*it->second, part.keys());
    if (!refusal.status.ok()) return refusal;
  }
  return {};
}

// A key that the map gives to another shard: the sender's map is old.
Shard::Refusal Shard::check_keys(const Table& table, std::span<const Key> keys) const {
  const std::string& name = table.options().name;
  const Placement& placement = table.options().placement;
  for (const Key key : placement.by_range() ? keys : std::span<const Key>()) {
    if (!placement.holds(key))
      return {invalid_argument("{}: key {} lies outside of its range", name, value(key))};
  }
  return routes_.owns_all(index_, placement, keys) ? Refusal{} : stale_map(name);
}

Shard::Refusal Shard::stale_map(const std::string& what) const {
  return {
      failed_precondition("{}: a key belongs to another shard by map {}", what, routes_.version()),
      v1::REASON_STALE_MAP};
}

void Shard::on(MethodTag<Method::kPsFeedSample>, Call& call) {
  const v1::Header& header = call.request.meta.header();
  if (Refusal refusal = check_trainable(header, false); !refusal.status.ok())
    return refuse(call.token, refusal);
  const v1::FeedSampleOption& option = call.request.meta.feed_sample();
  for (const v1::Watermark& mark : option.watermarks()) {
    const Status status =
        batches_.raise(mark.epoch(), mark.item(), mark.done_below(), mark.finished());
    if (!status.ok()) return refuse(call.token, status);
  }
  if (!option.watermarks().empty()) drop_done_batches();
  if (!header.has_batch()) return answer_ok(call.token);  // watermarks alone
  const BatchId id = batch_of(header);
  if (batches_.is_done(id)) return answer_ok(call.token);

  StatusOr<PreparedBatch> batch = decode_feed(call.request, merger_);
  if (!batch.ok()) return refuse(call.token, batch.status());
  const auto known = prepared_.find(id);
  if (known != prepared_.end()) {
    const auto& hashes = known->second.content_hashes;
    const bool is_repeat =
        std::find(hashes.begin(), hashes.end(), batch->content_hashes.front()) != hashes.end();
    if (!is_repeat && !known->second.is_continued_by(*batch)) {
      return refuse(call.token,
                    invalid_argument("batch {} was fed before with other content", text(id)));
    }
    // A hub that took the item over owns the batch from now on.
    known->second.hub = batch->hub;
    known->second.hub_incarnation = batch->hub_incarnation;
    if (is_repeat) return answer_ok(call.token);
  }
  if (Refusal refusal = check_feed(*batch); !refusal.status.ok())
    return refuse(call.token, refusal);
  if (Refusal refusal = check_window(*batch, option.window(), known == prepared_.end());
      !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  for (PreparedPart& part : batch->parts) {
    const Status status = tables_.at(part.table)->locate(part.keys(), part.hints);
    if (!status.ok()) return refuse(call.token, status);
  }
  prepared_bytes_ += batch->bytes;
  if (known == prepared_.end()) {
    prepared_.emplace(id, *std::move(batch));
    ++counts_.feeds;
  } else {
    known->second.add(*std::move(batch));
  }
  answer_ok(call.token);
  retry_waiting();
}

Shard::Refusal Shard::check_window(const PreparedBatch& batch, uint32_t window, bool is_new) const {
  if (window == 0) window = kWindow;
  const auto open = std::count_if(prepared_.begin(), prepared_.end(),
                                  [&](const auto& entry) { return entry.second.hub == batch.hub; });
  const bool is_full = is_new && (open >= window || prepared_.size() >= options_.prepared_max);
  if (!is_full && prepared_bytes_ + batch.bytes <= options_.prepared_bytes_max) return {};
  return {
      resource_exhausted("{} batches of this hub are prepared (its window is {}), {} bytes of {}",
                         open, window, prepared_bytes_, options_.prepared_bytes_max),
      v1::REASON_FEED_WINDOW_FULL};
}

void Shard::drop_done_batches() {
  for (auto it = prepared_.begin(); it != prepared_.end();) {
    if (!batches_.is_done(it->first)) {
      ++it;
      continue;
    }
    prepared_bytes_ -= it->second.bytes;
    it = prepared_.erase(it);
  }
  std::erase_if(kept_replies_,
                [&](const auto& entry) { return batches_.is_done(entry.first.first); });
  retry_waiting();
}

void Shard::drop_batches_of(NodeId hub, Incarnation incarnation) {
  for (auto it = prepared_.begin(); it != prepared_.end();) {
    const bool is_its = it->second.hub == hub && it->second.hub_incarnation == incarnation;
    // A push that waits for the other ranks of its step needs the keys when they are there.
    if (!is_its || is_staged(it->first)) {
      ++it;
      continue;
    }
    prepared_bytes_ -= it->second.bytes;
    it = prepared_.erase(it);
  }
}

void Shard::on(MethodTag<Method::kPsEmbeddingLookup>, Call& call) {
  const v1::Header& header = call.request.meta.header();
  if (Refusal refusal = check_trainable(header, true); !refusal.status.ok())
    return refuse(call.token, refusal);
  if (!header.has_batch())
    return refuse(call.token, invalid_argument("a lookup needs header.batch"));
  const bool expired = call.deadline.passed(call.now);
  if (try_lookup(call.request, call.token, expired)) return;
  if (waiting_.size() >= options_.waiting_max) {
    return refuse(call.token, resource_exhausted("{} lookups wait already", waiting_.size()));
  }
  waiting_.push_back({std::move(call.request), call.token, call.deadline});
}

// True when the request has been answered.
bool Shard::try_lookup(const Message& request, Token token, bool last_try) {
  const v1::Header& header = request.meta.header();
  const BatchId id = batch_of(header);
  if (batches_.is_done(id)) {
    refuse(token, failed_precondition("batch {} is done", text(id)), v1::REASON_ALREADY_DONE);
    return true;
  }
  auto it = prepared_.find(id);
  const bool ready = !header.has_rank() || clocks_.ready(header.clock());
  const bool is_fed = it != prepared_.end() && it->second.is_whole();
  if (is_fed && ready) {
    look_up(id, it->second, request, token);
    return true;
  }
  if (!last_try) return false;
  refuse(token, waiting_for(request), is_fed ? v1::REASON_NONE : v1::REASON_UNKNOWN_BATCH);
  return true;
}

Status Shard::waiting_for(const Message& request) const {
  const v1::Header& header = request.meta.header();
  const BatchId id = batch_of(header);
  const auto it = prepared_.find(id);
  if (it == prepared_.end() || !it->second.is_whole())
    return not_found("batch {} was not fed to shard {}", text(id), index_);
  std::vector<uint32_t> ranks;
  for (const Rank rank : clocks_.waiting_for(header.clock())) ranks.push_back(value(rank));
  return deadline_exceeded("batch {} at clock {} waits for ranks {}", text(id), header.clock(),
                           fmt::join(ranks, ", "));
}

void Shard::retry_waiting() {
  for (size_t left = waiting_.size(); left > 0; --left) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    if (!try_lookup(waiting.request, waiting.token, false)) waiting_.push_back(std::move(waiting));
  }
}

void Shard::look_up(const BatchId& id, PreparedBatch& batch, const Message& request, Token token) {
  Message reply;
  const auto& tables = request.meta.embedding_lookup().tables();
  const KeptName name{id, fmt::format("{}", fmt::join(tables.begin(), tables.end(), " "))};
  if (auto kept = kept_replies_.find(name); kept != kept_replies_.end()) {
    reply = kept->second;
  } else {
    if (const Status status = gather_batch(batch, request, reply); !status.ok())
      return refuse(token, status);
    // Asked again, by whoever takes the batch over, it must read the same values.
    if (clocks_.synchronous(request.meta.header().clock())) kept_replies_.emplace(name, reply);
  }
  const v1::EmbeddingLookupOption& option = request.meta.embedding_lookup();
  const StatusOr<uint64_t> total = shape_reply(option.range(), option.dtype(), reply);
  if (!total.ok()) return refuse(token, total.status());
  reply.meta.mutable_embedding_lookup_reply()->set_rows_total(*total);
  answer(token, std::move(reply));
}

Status Shard::gather_batch(PreparedBatch& batch, const Message& request, Message& reply) {
  const v1::Header& header = request.meta.header();
  auto* lookup = reply.meta.mutable_embedding_lookup_reply();
  for (PreparedPart& part : batch.parts) {
    const auto& wanted = request.meta.embedding_lookup().tables();
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), part.table) == wanted.end())
      continue;
    Table& table = *tables_.at(part.table);
    PartCounts& counts = part_counts_[part.table];
    counts.lookups += part.keys().size();
    counts.hot.count(part.keys());
    counts.misses +=
        static_cast<uint64_t>(std::count(part.hints.rows.begin(), part.hints.rows.end(), kNoRow));
    v1::LookupPart* out = lookup->add_parts();
    out->set_table(part.table);
    const auto dim = static_cast<int64_t>(table.dim());
    if (part.row_keys > 0) {
      Tensor rows = Tensor::allocate(DType::kFloat32, {part.row_keys, dim}, options_.pool);
      const bool all = part.row_keys == part.keys().size();
      RowHints first;
      if (!all)
        first = {{part.hints.rows.begin(), part.hints.rows.begin() + part.row_keys},
                 part.hints.generation};
      Status status = table.gather(part.keys().first(part.row_keys), all ? &part.hints : &first,
                                   rows.mutable_values<float>());
      if (!status.ok()) return status;
      out->set_rows_tensor(static_cast<uint32_t>(reply.tensors.size()));
      reply.tensors.push_back(std::move(rows));
    }
    for (const PreparedField& field : part.fields) {
      if (!field.pooled) continue;
      Tensor sums = Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(field.segments()), dim},
                                     options_.pool);
      Status status = table.pool(part.keys(), &part.hints, field.layout(), Pooling::kSum,
                                 sums.mutable_values<float>());
      if (!status.ok()) return status;
      v1::LookupField* pooled = out->add_fields();
      pooled->set_field(field.name);
      pooled->set_sums_tensor(static_cast<uint32_t>(reply.tensors.size()));
      reply.tensors.push_back(std::move(sums));
      if (request.meta.embedding_lookup().with_samples()) {
        pooled->set_samples_tensor(static_cast<uint32_t>(reply.tensors.size()));
        reply.tensors.push_back(field.samples);
      }
    }
  }
  if (header.has_rank()) {
    const uint64_t behind = clocks_.behind(header.clock());
    lookup->set_staleness(behind);
    counts_.staleness_max = std::max(counts_.staleness_max, behind);
  }
  return absl::OkStatus();
}

}  // namespace starling
