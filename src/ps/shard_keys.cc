// The second way, by key: pull, push of gradients, and setting rows, numbered per session.
#include <algorithm>

#include "ps/reply.h"
#include "ps/shard.h"

namespace starling {
namespace {

constexpr uint64_t kRangeKeysMax = uint64_t{1} << 26;

StatusOr<std::span<const float>> numbers_at(const Message& request, bool given, uint32_t index,
                                            const std::string& what, size_t count) {
  if (!given) return std::span<const float>();
  STARLING_ASSIGN_OR_RETURN(const Tensor* tensor,
                            tensor_at(request, index, what, DType::kFloat32, 1));
  if (static_cast<size_t>(tensor->elements()) != count) {
    return invalid_argument("{}: {} numbers for {} keys", what, tensor->elements(), count);
  }
  return tensor->values<float>();
}

uint32_t add_tensor(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

}  // namespace

struct Shard::KeyPush {
  Table* table;
  KeyList list;
  std::span<const float> gradients, shows, clicks;
  bool create;
};

Shard::Refusal Shard::list_range(const v1::Header& header, const Table& table,
                                 const v1::KeyRange& range, KeyList& out) const {
  const Placement& placement = table.options().placement;
  const std::string& name = table.options().name;
  if (!placement.by_range()) return {invalid_argument("{} is not a range table", name)};
  if (range.lo() < placement.low || range.hi() > placement.high || range.hi() <= range.lo()) {
    return {invalid_argument("{}: [{}, {}) lies outside of [{}, {})", name, range.lo(), range.hi(),
                             placement.low, placement.high)};
  }
  if (range.hi() - range.lo() > kRangeKeysMax) {
    return {resource_exhausted("{}: a range of {} keys; at most {} at once", name,
                               range.hi() - range.lo(), kRangeKeysMax)};
  }
  // Both sides must mean the same keys.
  if (header.map_version() != 0 && header.map_version() != routes_.version()) {
    return stale_map(name);
  }
  for (uint64_t key = range.lo(); key < range.hi(); ++key) {
    if (routes_.owner(placement, static_cast<Key>(key)) == index_)
      out.listed.push_back(static_cast<Key>(key));
  }
  out.keys = out.listed;
  return {};
}

Shard::Refusal Shard::list_keys(const Message& request, const std::string& name,
                                std::optional<uint32_t> keys_tensor, const v1::KeyRange* range,
                                KeyList& out) const {
  auto it = tables_.find(name);
  if (it == tables_.end()) return {not_found("no table named {}", name)};
  if (keys_tensor.has_value() == (range != nullptr))
    return {invalid_argument("{}: needs keys or a range, not both", name)};
  if (range != nullptr) return list_range(request.meta.header(), *it->second, *range, out);
  const StatusOr<const Tensor*> tensor =
      tensor_at(request, *keys_tensor, name + ".keys", DType::kUInt64, 1);
  if (!tensor.ok()) return {tensor.status()};
  out.tensor = **tensor;
  out.keys = {reinterpret_cast<const Key*>(out.tensor.buffer().data()),
              out.tensor.bytes() / sizeof(Key)};
  return check_keys(*it->second, out.keys);
}

Shard::Refusal Shard::check_key_push(const Message& request, std::vector<KeyPush>& parts) const {
  const v1::PushGradOption& option = request.meta.push_grad();
  if (!option.batch().empty()) return {invalid_argument("parts by batch need header.batch")};
  for (const v1::KeyGradPart& proto : option.keys()) {
    KeyPush part{};
    const auto keys = proto.has_keys_tensor() ? std::optional(proto.keys_tensor()) : std::nullopt;
    Refusal refusal = list_keys(request, proto.table(), keys,
                                proto.has_range() ? &proto.range() : nullptr, part.list);
    if (!refusal.status.ok()) return refusal;
    part.table = tables_.at(proto.table()).get();
    part.create = !proto.no_create();
    const size_t n = part.list.keys.size();
    const auto grads =
        matrix_at(request, proto.grads_tensor(), proto.table() + ".grads", n, part.table->dim());
    if (!grads.ok()) return {grads.status()};
    part.gradients = (*grads)->values<float>();
    if (part.table->options().refuse_nonfinite && !all_finite(part.gradients)) {
      return {invalid_argument("{}: the gradient has a NaN or infinity", proto.table()),
              v1::REASON_CONTENT_REFUSED};
    }
    const auto shows = numbers_at(request, proto.has_shows_tensor(), proto.shows_tensor(),
                                  proto.table() + ".shows", n);
    if (!shows.ok()) return {shows.status()};
    const auto clicks = numbers_at(request, proto.has_clicks_tensor(), proto.clicks_tensor(),
                                   proto.table() + ".clicks", n);
    if (!clicks.ok()) return {clicks.status()};
    part.shows = *shows;
    part.clicks = *clicks;
    parts.push_back(std::move(part));
  }
  if (Refusal refusal = check_dense_push(request); !refusal.status.ok()) return refusal;
  const bool creates =
      std::any_of(parts.begin(), parts.end(), [](const KeyPush& part) { return part.create; });
  if (creates && over_memory()) return memory_full();
  return {};
}

void Shard::push_keys(Call& call) {
  AppliedNumbers::Operation operation;
  if (!begin_numbered(call, operation)) return;
  std::vector<KeyPush> parts;
  if (Refusal refusal = check_key_push(call.request, parts); !refusal.status.ok()) {
    // A refusal for the content is the operation's final answer; any other may be tried again.
    if (refusal.reason == v1::REASON_CONTENT_REFUSED) numbers_.record(operation, refusal.status);
    return refuse(call.token, refusal);
  }
  for (KeyPush& part : parts) {
    PartCounts& counts = part_counts_[part.table->options().name];
    const PushBatch batch{.keys = part.list.keys,
                          .gradients = part.gradients,
                          .shows = part.shows,
                          .clicks = part.clicks,
                          .step = counts.last_step};
    const auto done = part.create ? part.table->push(batch) : part.table->apply(batch);
    if (!done.ok()) {
      numbers_.record(operation, done.status());
      return refuse(call.token, done.status());
    }
    counts.pushes += part.list.keys.size();
  }
  for (const auto& [name, variable] : variables_) {
    const auto& dense = call.request.meta.push_grad().dense();
    const bool has = std::any_of(dense.begin(), dense.end(), [&name = name](const auto& part) {
      return part.variable() == name;
    });
    if (has) variable->apply(call.request);
  }
  numbers_.record(operation);
  ++step_;
  answer_ok(call.token);
}

Shard::Refusal Shard::check_push(const Message& request, std::vector<KeyList>& lists) const {
  for (const v1::KeyValuesPart& part : request.meta.push().keys()) {
    KeyList list;
    const auto keys = part.has_keys_tensor() ? std::optional(part.keys_tensor()) : std::nullopt;
    Refusal refusal =
        list_keys(request, part.table(), keys, part.has_range() ? &part.range() : nullptr, list);
    if (!refusal.status.ok()) return refusal;
    if (!KeyMerger().all_differ(list.keys))
      return {invalid_argument("{}: a key is set twice", part.table())};
    const Table& table = *tables_.at(part.table());
    if (part.content() != v1::CONTENT_WEIGHTS && !part.erase()) {
      return {unimplemented("{}: rows are set by their weights; whole rows go through a checkpoint",
                            part.table())};
    }
    if (!part.erase()) {
      if (!part.has_values_tensor())
        return {invalid_argument("{}: values_tensor is missing", part.table())};
      const auto values = matrix_at(request, part.values_tensor(), part.table() + ".values",
                                    list.keys.size(), table.dim());
      if (!values.ok()) return {values.status()};
      if (!all_finite((*values)->values<float>())) {
        return {invalid_argument("{}: a value is NaN or infinite", part.table()),
                v1::REASON_CONTENT_REFUSED};
      }
    }
    lists.push_back(std::move(list));
  }
  for (const v1::DenseValuesPart& part : request.meta.push().dense()) {
    auto it = variables_.find(part.variable());
    if (it == variables_.end()) return {not_found("no variable named {}", part.variable())};
    if (const Status status = it->second->check_values(request, part); !status.ok())
      return {status};
  }
  return {};
}

void Shard::on(MethodTag<Method::kPsPush>, Call& call) {
  const v1::Header& header = call.request.meta.header();
  const bool rows = !call.request.meta.push().keys().empty();
  if (Refusal refusal = rows ? check_trainable(header, false) : check_header(header, false);
      !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  AppliedNumbers::Operation operation;
  if (!begin_numbered(call, operation)) return;
  std::vector<KeyList> lists;
  if (Refusal refusal = check_push(call.request, lists); !refusal.status.ok()) {
    if (refusal.reason == v1::REASON_CONTENT_REFUSED) numbers_.record(operation, refusal.status);
    return refuse(call.token, refusal);
  }
  size_t at = 0;
  for (const v1::KeyValuesPart& part : call.request.meta.push().keys()) {
    Table& table = *tables_.at(part.table());
    const std::span<const Key> keys = lists[at++].keys;
    Status status;
    if (part.erase()) {
      status = table.erase(keys).status();
    } else {
      RowBatch rows_now;
      status = table.get(keys, rows_now);
      const auto values = call.request.tensors[part.values_tensor()].values<float>();
      rows_now.weights.assign(values.begin(), values.end());
      if (status.ok()) status = table.set(keys, rows_now);
    }
    if (!status.ok()) {
      numbers_.record(operation, status);
      return refuse(call.token, status);
    }
  }
  for (const v1::DenseValuesPart& part : call.request.meta.push().dense()) {
    variables_.at(part.variable())->set(call.request, part);
  }
  numbers_.record(operation);
  answer_ok(call.token);
}

// The rows of `part` that exist, with their keys, for a caller who asked for no others.
Status Shard::pull_existing(const Table& table, std::span<const Key> asked, Message& reply,
                            v1::KeyPullReply* out) {
  RowHints all;
  STARLING_RETURN_IF_ERROR(table.locate(asked, all));
  RowHints hints{.generation = all.generation};
  std::vector<Key> keys;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (all.rows[i] == kNoRow) continue;
    keys.push_back(asked[i]);
    hints.rows.push_back(all.rows[i]);
  }
  const auto n = static_cast<int64_t>(keys.size());
  Tensor listed = Tensor::allocate(DType::kUInt64, {n});
  std::transform(keys.begin(), keys.end(), listed.mutable_values<uint64_t>().begin(),
                 [](Key key) { return value(key); });
  out->set_keys_tensor(add_tensor(reply, std::move(listed)));
  Tensor values =
      Tensor::allocate(DType::kFloat32, {n, static_cast<int64_t>(table.dim())}, options_.pool);
  STARLING_RETURN_IF_ERROR(table.gather(keys, &hints, values.mutable_values<float>()));
  out->set_values_tensor(add_tensor(reply, std::move(values)));
  PartCounts& counts = part_counts_[table.options().name];
  counts.lookups += keys.size();
  counts.hot.count(keys);
  return absl::OkStatus();
}

Status Shard::pull_part(const v1::KeyPullPart& part, const KeyList& list, Message& reply) {
  const Table& table = *tables_.at(part.table());
  v1::KeyPullReply* out = reply.meta.mutable_pull_reply()->add_keys();
  out->set_table(part.table());
  const std::span<const Key> keys = list.keys;
  const auto n = static_cast<int64_t>(keys.size());
  if (part.existing_only()) {
    STARLING_RETURN_IF_ERROR(pull_existing(table, keys, reply, out));
    if (part.with_found()) {
      const int64_t found = reply.tensors.back().shape()[0];
      Tensor ones = Tensor::allocate(DType::kUInt8, {found});
      std::fill_n(ones.mutable_values<uint8_t>().data(), found, uint8_t{1});
      out->set_found_tensor(add_tensor(reply, std::move(ones)));
    }
    return absl::OkStatus();
  }
  RowHints hints;
  if (part.with_found()) STARLING_RETURN_IF_ERROR(table.locate(keys, hints));
  Tensor values =
      Tensor::allocate(DType::kFloat32, {n, static_cast<int64_t>(table.dim())}, options_.pool);
  uint64_t missing = 0;
  STARLING_RETURN_IF_ERROR(table.gather(keys, part.with_found() ? &hints : nullptr,
                                        values.mutable_values<float>(), &missing));
  out->set_values_tensor(add_tensor(reply, std::move(values)));
  PartCounts& counts = part_counts_[part.table()];
  counts.lookups += keys.size();
  counts.misses += missing;
  counts.hot.count(keys);
  if (part.with_found()) {
    Tensor found = Tensor::allocate(DType::kUInt8, {n});
    std::transform(hints.rows.begin(), hints.rows.end(), found.mutable_values<uint8_t>().begin(),
                   [](RowNumber row) { return static_cast<uint8_t>(row != kNoRow); });
    out->set_found_tensor(add_tensor(reply, std::move(found)));
  }
  return absl::OkStatus();
}

// Before a row is made: all that is asked for can be answered.
Shard::Refusal Shard::check_pull(const Message& request, std::vector<KeyList>& lists) const {
  if (const Status status = check_reply_type(request.meta.pull().dtype()); !status.ok())
    return {status};
  for (const v1::KeyPullPart& part : request.meta.pull().keys()) {
    const auto keys = part.has_keys_tensor() ? std::optional(part.keys_tensor()) : std::nullopt;
    Refusal refusal =
        list_keys(request, part.table(), keys, part.has_key_range() ? &part.key_range() : nullptr,
                  lists.emplace_back());
    if (!refusal.status.ok()) return refusal;
    if (part.content() != v1::CONTENT_WEIGHTS) {
      return {unimplemented("{}: only weights can be pulled; whole rows go through a checkpoint",
                            part.table())};
    }
  }
  for (const v1::DensePullPart& part : request.meta.pull().dense()) {
    auto it = variables_.find(part.variable());
    if (it == variables_.end()) return {not_found("no variable named {}", part.variable())};
    if (const Status status = it->second->check_pull(part); !status.ok()) return {status};
  }
  return {};
}

// Counts, admits and makes rows for a pull that asks for it: a numbered operation. False when it
// was refused.
bool Shard::create_pulled(const Call& call, const std::vector<KeyList>& lists) {
  const AppliedNumbers::Operation operation = operation_of(call.request);
  const StatusOr<Seen> seen = numbers_.check(operation);
  if (!seen.ok()) {
    refuse(call.token, seen.status(), reason_of(seen.status(), operation));
    return false;
  }
  if (*seen == Seen::kRepeat) {
    ++counts_.repeats;
    return true;
  }
  note_session(call.request.meta.header());
  if (over_memory()) {
    refuse(call.token, memory_full());
    return false;
  }
  size_t at = 0;
  for (const v1::KeyPullPart& part : call.request.meta.pull().keys()) {
    const KeyList& list = lists[at++];
    if (!part.create()) continue;
    const PushBatch batch{.keys = list.keys, .step = part_counts_[part.table()].last_step};
    if (const auto made = tables_.at(part.table())->resolve(batch, nullptr); !made.ok()) {
      numbers_.record(operation, made.status());
      refuse(call.token, made.status());
      return false;
    }
  }
  numbers_.record(operation);
  return true;
}

void Shard::on(MethodTag<Method::kPsPull>, Call& call) {
  const v1::PullOption& option = call.request.meta.pull();
  const bool creates = std::any_of(option.keys().begin(), option.keys().end(),
                                   [](const v1::KeyPullPart& part) { return part.create(); });
  const v1::Header& header = call.request.meta.header();
  const bool rows = !option.keys().empty();
  if (Refusal refusal = rows ? check_trainable(header, !creates) : check_header(header, true);
      !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  std::vector<KeyList> lists;
  if (Refusal refusal = check_pull(call.request, lists); !refusal.status.ok()) {
    return refuse(call.token, refusal);
  }
  if (creates && !create_pulled(call, lists)) return;
  Message reply;
  size_t at = 0;
  for (const v1::KeyPullPart& part : option.keys()) {
    if (const Status status = pull_part(part, lists[at++], reply); !status.ok())
      return refuse(call.token, status);
  }
  for (const v1::DensePullPart& part : option.dense()) {
    variables_.at(part.variable())->pull(part, reply);
  }
  const StatusOr<uint64_t> total = shape_reply(option.range(), option.dtype(), reply);
  if (!total.ok()) return refuse(call.token, total.status());
  reply.meta.mutable_pull_reply()->set_rows_total(*total);
  answer(call.token, std::move(reply));
}

}  // namespace starling
