// Pushes by batch id: staged and applied in rank order when synchronous, at once otherwise.
#include <algorithm>

#include "ps/shard.h"

namespace starling {
namespace {

BatchId id_of(const v1::BatchId& id) {
  return {.epoch = id.epoch(), .item = id.item(), .number = id.number()};
}

// By which the parts of tables are known.
BatchId batch_of(const v1::Header& header) { return id_of(header.batch()); }

// By which the parts of variables are known: merged gradients are those of the whole group.
BatchId group_of(const v1::Header& header) {
  return id_of(header.has_group() ? header.group() : header.batch());
}

Status no_member(Rank rank, uint64_t clock) {
  return failed_precondition("rank {} takes no part in step {}", value(rank), clock);
}

// The names of tables and variables that a push has a part of.
std::vector<std::string> parts_of(const v1::PushGradOption& option) {
  std::vector<std::string> names;
  for (const auto& part : option.batch()) names.push_back(part.table());
  for (const auto& part : option.dense()) names.push_back(part.variable());
  return names;
}

std::set<std::string> variables_of(const v1::PushGradOption& option) {
  std::set<std::string> names;
  for (const auto& part : option.dense()) names.insert(part.variable());
  return names;
}

size_t bytes_of(const Message& message) {
  size_t bytes = message.meta.ByteSizeLong();
  for (const Tensor& tensor : message.tensors) bytes += tensor.bytes();
  return bytes;
}

// A number per sample, as the trainer sent it.
Status check_per_sample(const Message& request, bool given, uint32_t index, std::string_view what,
                        size_t samples) {
  if (!given) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const Tensor* tensor,
                            tensor_at(request, index, what, DType::kFloat32, 1));
  if (static_cast<size_t>(tensor->elements()) == samples) return absl::OkStatus();
  return invalid_argument("{}: {} numbers for {} samples", what, tensor->elements(), samples);
}

// The number of each sample, handed to every key of its segments.
std::vector<float> per_key(const PreparedPart& part, std::span<const float> per_sample,
                           float fallback) {
  std::vector<float> out(part.keys().size());
  std::vector<float> per_segment;
  for (const PreparedField& field : part.fields) {
    per_segment.clear();
    for (const uint32_t sample : field.samples.values<uint32_t>()) {
      per_segment.push_back(per_sample.empty() ? fallback : per_sample[sample]);
    }
    scatter_counts(field.layout(), per_segment, out);
  }
  return out;
}

}  // namespace

void Shard::on(MethodTag<Method::kPsPushGrad>, Call& call) {
  const v1::Header& header = call.request.meta.header();
  if (Refusal refusal = check_trainable(header, false); !refusal.status.ok())
    return refuse(call.token, refusal);
  if (!header.has_batch()) return push_keys(call);
  push_batch(call);
}

void Shard::push_batch(Call& call) {
  const v1::Header& header = call.request.meta.header();
  const v1::PushGradOption& option = call.request.meta.push_grad();
  const BatchId id = batch_of(header);
  if (!option.keys().empty())
    return refuse(call.token, invalid_argument("a push by batch has no parts by key"));
  if (batches_.is_done(id)) {
    // Over long ago; the tick still counts, since the clock may not have heard of it.
    ++counts_.repeats;
    tick_rank(header, option.parts_announced(), parts_of(option));
    return answer_ok(call.token);
  }
  auto it = prepared_.find(id);
  PreparedBatch* batch = it == prepared_.end() ? nullptr : &it->second;
  if (Refusal refusal = check_batch_push(call.request, batch); !refusal.status.ok()) {
    if (refusal.reason == v1::REASON_CONTENT_REFUSED) {
      for (const auto& part : option.batch()) batches_.record(id, part.table(), refusal.status);
      for (const auto& part : option.dense()) {
        batches_.record(group_of(header), part.variable(), refusal.status);
      }
    }
    return refuse(call.token, refusal);
  }
  if (header.has_rank() && clocks_.synchronous(header.clock())) {
    return stage(call, static_cast<Rank>(header.rank()), header.clock());
  }
  apply_batch_parts(call.request, batch, /*with_dense=*/true);
  tick_rank(header, option.parts_announced(), parts_of(option));
  answer_ok(call.token);
  // Others may have staged this step while it was to be synchronous.
  if (!staged_.empty()) apply_ready_steps();
  retry_waiting();
}

// The message is checked whole before any part of it applies.
Shard::Refusal Shard::check_batch_push(const Message& request, const PreparedBatch* batch) const {
  const v1::PushGradOption& option = request.meta.push_grad();
  const v1::Header& header = request.meta.header();
  const BatchId id = batch_of(header);
  const BatchId group = group_of(header);
  if (header.has_group() && header.has_rank() && clocks_.synchronous(header.clock())) {
    return {invalid_argument("gradients are not merged over steps at staleness 0")};
  }
  std::set<std::string> names;
  bool makes_rows = false;
  for (const v1::BatchGradPart& part : option.batch()) {
    if (!names.insert(part.table()).second) {
      return {invalid_argument("table {} twice in one push", part.table())};
    }
    if (const Status status = batches_.outcome(id, part.table()); !status.ok()) {
      return {status, v1::REASON_CONTENT_REFUSED};
    }
    if (batches_.is_applied(id, part.table())) continue;
    if (!tables_.contains(part.table())) return {not_found("no table named {}", part.table())};
    const PreparedPart* prepared = batch == nullptr ? nullptr : batch->find(part.table());
    if (prepared == nullptr) {
      return {not_found("batch {}/{}/{} has no keys of {} here", id.epoch, id.item, id.number,
                        part.table()),
              v1::REASON_UNKNOWN_BATCH};
    }
    Refusal refusal = check_batch_part(request, part, *prepared);
    if (!refusal.status.ok()) return refusal;
    const auto& rows = prepared->hints.rows;
    makes_rows |= std::find(rows.begin(), rows.end(), kNoRow) != rows.end();
  }
  if (batch != nullptr) {
    Status status = check_per_sample(request, option.has_shows_tensor(), option.shows_tensor(),
                                     "shows", batch->samples);
    if (status.ok()) {
      status = check_per_sample(request, option.has_clicks_tensor(), option.clicks_tensor(),
                                "clicks", batch->samples);
    }
    if (!status.ok()) return {status};
  }
  for (const v1::DenseGradPart& part : option.dense()) {
    if (const Status status = batches_.outcome(group, part.variable()); !status.ok()) {
      return {status, v1::REASON_CONTENT_REFUSED};
    }
  }
  if (Refusal refusal = check_dense_push(request); !refusal.status.ok()) return refusal;
  if (makes_rows && over_memory()) return memory_full();
  return {};
}

Shard::Refusal Shard::check_batch_part(const Message& request, const v1::BatchGradPart& part,
                                       const PreparedPart& prepared) const {
  const Table& table = *tables_.at(part.table());
  const auto check = [&](uint32_t index, size_t rows, const std::string& what) -> Refusal {
    const StatusOr<const Tensor*> tensor = matrix_at(request, index, what, rows, table.dim());
    if (!tensor.ok()) return {tensor.status()};
    if (table.options().refuse_nonfinite && !all_finite((*tensor)->values<float>())) {
      return {invalid_argument("{}: the gradient has a NaN or infinity", what),
              v1::REASON_CONTENT_REFUSED};
    }
    return {};
  };
  if (part.has_rows_tensor() != (prepared.row_keys > 0)) {
    return {invalid_argument("{}: {} keys travelled as rows", part.table(), prepared.row_keys)};
  }
  if (part.has_rows_tensor()) {
    Refusal refusal = check(part.rows_tensor(), prepared.row_keys, part.table() + ".rows");
    if (!refusal.status.ok()) return refusal;
  }
  std::set<std::string> fields;
  for (const v1::FieldGrad& grad : part.fields()) {
    auto field =
        std::find_if(prepared.fields.begin(), prepared.fields.end(),
                     [&](const PreparedField& f) { return f.name == grad.field() && f.pooled; });
    if (field == prepared.fields.end() || !fields.insert(grad.field()).second) {
      return {invalid_argument("{}.{} is no pooled field of the batch, or twice", part.table(),
                               grad.field())};
    }
    Refusal refusal = check(grad.sums_tensor(), field->segments(),
                            fmt::format("{}.{}", part.table(), grad.field()));
    if (!refusal.status.ok()) return refusal;
  }
  const auto pooled = std::count_if(prepared.fields.begin(), prepared.fields.end(),
                                    [](const PreparedField& f) { return f.pooled; });
  if (static_cast<size_t>(pooled) == fields.size()) return {};
  return {invalid_argument("{}: gradients of {} of {} pooled fields", part.table(), fields.size(),
                           pooled)};
}

Shard::Refusal Shard::check_dense_push(const Message& request) const {
  std::set<std::pair<std::string, uint64_t>> starts;
  for (const v1::DenseGradPart& part : request.meta.push_grad().dense()) {
    auto it = variables_.find(part.variable());
    if (it == variables_.end()) return {not_found("no variable named {}", part.variable())};
    const Status status = it->second->check_gradient(request, part);
    if (status.code() == StatusCode::kDataLoss) {
      return {invalid_argument("{}", message_of(status)), v1::REASON_CONTENT_REFUSED};
    }
    if (!status.ok()) return {status};
    const DenseSplit& split = it->second->split();
    const uint64_t end = part.has_range() ? part.range().end() : split.elements;
    for (uint32_t at = split.part_of(part.range().begin());
         at < split.parts && split.begin(at) < end; ++at) {
      if (starts.emplace(part.variable(), split.begin(at)).second) continue;
      return {invalid_argument("{}: two gradients of element {} in one push", part.variable(),
                               split.begin(at))};
    }
  }
  return {};
}

// A synchronous step waits until the pushes of all its ranks are there.
void Shard::stage(Call& call, Rank rank, uint64_t clock) {
  if (clocks_.ticked(rank, clock)) {
    ++counts_.repeats;
    return answer_ok(call.token);
  }
  const v1::PushGradOption& option = call.request.meta.push_grad();
  if (!clocks_.is_member(rank, clock)) {
    // A late repeat of a rank that has left, or somebody who was never announced.
    const BatchId id = batch_of(call.request.meta.header());
    const std::vector<std::string> names = parts_of(option);
    const bool is_repeat = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return batches_.is_applied(id, name);
    });
    if (!is_repeat) return refuse(call.token, no_member(rank, clock));
    ++counts_.repeats;
    return answer_ok(call.token);
  }
  Staged& staged = staged_[clock][rank];
  const std::vector<std::string> parts = parts_of(option);
  const bool repeat = !staged.messages.empty() &&
                      std::all_of(parts.begin(), parts.end(),
                                  [&](const auto& part) { return staged.parts.contains(part); });
  if (!repeat) {
    const size_t bytes = bytes_of(call.request);
    if (staged_bytes_ + bytes > options_.staging_bytes_max) {
      if (staged.messages.empty()) staged_[clock].erase(rank);
      return refuse(call.token, resource_exhausted("staged pushes hold {} bytes of {}",
                                                   staged_bytes_, options_.staging_bytes_max));
    }
    staged.parts.insert(parts.begin(), parts.end());
    staged.announced = std::max(staged.announced, option.parts_announced());
    staged.bytes += bytes;
    staged_bytes_ += bytes;
    staged.messages.push_back(std::move(call.request));
  }
  staged.tokens.push_back(call.token);
  apply_ready_steps();
}

bool Shard::is_staged(const BatchId& id) const {
  for (const auto& [clock, ranks] : staged_) {
    for (const auto& [rank, staged] : ranks) {
      for (const Message& message : staged.messages) {
        if (batch_of(message.meta.header()) == id) return true;
      }
    }
  }
  return false;
}

void Shard::drop_staged_of(Rank rank, uint64_t clock) {
  for (auto step = staged_.lower_bound(clock); step != staged_.end();) {
    if (auto it = step->second.find(rank); it != step->second.end()) {
      staged_bytes_ -= it->second.bytes;
      for (const Token token : it->second.tokens) refuse(token, no_member(rank, step->first));
      step->second.erase(it);
    }
    step = step->second.empty() ? staged_.erase(step) : std::next(step);
  }
}

void Shard::apply_ready_steps() {
  while (!staged_.empty()) {
    const uint64_t clock = staged_.begin()->first;
    const std::vector<Rank> ranks = clocks_.members(clock);
    const std::map<Rank, Staged>& step = staged_.begin()->second;
    const bool complete = !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
      auto it = step.find(rank);
      return (it != step.end() && it->second.complete()) || clocks_.ticked(rank, clock);
    });
    if (!complete) return;
    apply_step(clock, ranks);
  }
}

void Shard::apply_step(uint64_t clock, const std::vector<Rank>& ranks) {
  std::map<Rank, Staged> step = std::move(staged_.begin()->second);
  staged_.erase(staged_.begin());
  std::vector<const Message*> in_order;
  for (const Rank rank : ranks) {
    auto it = step.find(rank);
    if (it == step.end()) continue;
    for (const Message& message : it->second.messages) {
      note_batch(message.meta.header());
      auto prepared = prepared_.find(batch_of(message.meta.header()));
      apply_batch_parts(message, prepared == prepared_.end() ? nullptr : &prepared->second,
                        /*with_dense=*/false);
      in_order.push_back(&message);
    }
  }
  for (const auto& [name, variable] : variables_)
    variable->apply_reduced(in_order, ranks.size(), clock);
  for (const Message* message : in_order) {
    const BatchId id = batch_of(message->meta.header());
    for (const auto& part : message->meta.push_grad().dense()) batches_.record(id, part.variable());
  }
  for (const Rank rank : ranks) {
    (void)clocks_.tick(rank, clock);
    if (!clocks_.active(rank)) rank_batches_.erase(rank);
    auto it = step.find(rank);
    if (it == step.end()) continue;
    staged_bytes_ -= it->second.bytes;
    for (const Token token : it->second.tokens) answer_ok(token);
  }
  retry_waiting();
}

void Shard::apply_batch_parts(const Message& request, PreparedBatch* batch, bool with_dense) {
  const v1::PushGradOption& option = request.meta.push_grad();
  const BatchId id = batch_of(request.meta.header());
  bool any = false;
  for (const v1::BatchGradPart& part : option.batch()) {
    if (batches_.is_applied(id, part.table())) {
      ++counts_.repeats;
      continue;
    }
    batches_.record(id, part.table(), apply_sparse(request, part, *batch));
    any = true;
  }
  const BatchId group = group_of(request.meta.header());
  for (const std::string& name : with_dense ? variables_of(option) : std::set<std::string>()) {
    if (batches_.is_applied(group, name)) {
      ++counts_.repeats;
      continue;
    }
    variables_.at(name)->apply(request);
    batches_.record(group, name);
    any = true;
  }
  if (any) ++step_;
}

// What the table itself refuses (no room for more rows) changes nothing and is the part's final
// outcome.
Status Shard::apply_sparse(const Message& request, const v1::BatchGradPart& part,
                           PreparedBatch& batch) {
  PreparedPart& prepared = *batch.find(part.table());
  Table& table = *tables_.at(part.table());
  const size_t dim = table.dim();
  std::span<const float> gradients;
  std::vector<float> merged;
  if (prepared.row_keys == prepared.keys().size() && part.fields().empty()) {
    if (part.has_rows_tensor()) gradients = request.tensors[part.rows_tensor()].values<float>();
  } else {
    merged.resize(prepared.keys().size() * dim);
    if (part.has_rows_tensor()) {
      const auto rows = request.tensors[part.rows_tensor()].values<float>();
      std::copy(rows.begin(), rows.end(), merged.begin());
    }
    for (const PreparedField& field :
         prepared.fields) {  // in field order, whatever the order of the message
      for (const v1::FieldGrad& grad : part.fields()) {
        if (grad.field() != field.name) continue;
        scatter(field.layout(), Pooling::kSum, dim,
                request.tensors[grad.sums_tensor()].values<float>(), merged);
      }
    }
    gradients = merged;
  }
  const v1::PushGradOption& option = request.meta.push_grad();
  std::vector<float> shows, clicks;
  if (table.options().statistics.enabled) {
    const auto given = [&](bool has, uint32_t index) {
      return has ? request.tensors[index].values<float>() : std::span<const float>();
    };
    shows = per_key(prepared, given(option.has_shows_tensor(), option.shows_tensor()), 1);
    clicks = per_key(prepared, given(option.has_clicks_tensor(), option.clicks_tensor()), 0);
  }
  uint64_t& last_step = part_counts_[part.table()].last_step;
  last_step = std::max(last_step, batch.step);
  const StatusOr<OperationCounts> done = table.push({.keys = prepared.keys(),
                                                     .gradients = gradients,
                                                     .shows = shows,
                                                     .clicks = clicks,
                                                     .step = last_step,
                                                     .key_set = KeySet::kUnique,
                                                     .hints = &prepared.hints});
  part_counts_[part.table()].pushes += prepared.keys().size();
  return done.status();
}

void Shard::note_batch(const v1::Header& header) {
  v1::RankBatch& newest = rank_batches_[static_cast<Rank>(header.rank())];
  if (newest.clock() > header.clock()) return;
  newest.set_rank(header.rank());
  newest.set_clock(header.clock() + 1);
  *newest.mutable_batch() = header.batch();
}

// A step counts when all of its announced parts are in, whether or not they had data or were
// repeats.
void Shard::tick_rank(const v1::Header& header, uint32_t announced,
                      const std::vector<std::string>& parts) {
  if (!header.has_rank()) return;
  const auto rank = static_cast<Rank>(header.rank());
  if (announced > parts.size()) {
    std::set<std::string>& so_far = announced_[{rank, header.clock()}];
    so_far.insert(parts.begin(), parts.end());
    if (so_far.size() < announced) return;
  }
  announced_.erase({rank, header.clock()});
  // Beyond the bound the rank is only seen as slower than it is, and catches up with its next
  // ticks.
  (void)clocks_.tick(rank, header.clock());
  if (clocks_.active(rank)) {
    note_batch(header);
  } else {
    rank_batches_.erase(rank);
  }
}

}  // namespace starling
