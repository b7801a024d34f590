#include "ps/operation.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace starling {
namespace {

constexpr uint64_t kRangeKeysMax = uint64_t{1} << 26;  // of one range; as a shard's

// Keys of one table: what the cuts of all operations by key have in common.
struct KeyItem {
  std::string table;
  Placement placement;
  uint32_t dim = 0;
  Tensor keys;
  std::optional<v1::KeyRange> range;

  size_t size() const {
    return range.has_value() ? static_cast<size_t>(range->hi() - range->lo())
                             : static_cast<size_t>(keys.elements());
  }
  Key key(size_t i) const {
    return range.has_value() ? static_cast<Key>(range->lo() + i)
                             : static_cast<Key>(keys.values<uint64_t>()[i]);
  }
};

StatusOr<KeyItem> key_item(const ClientSchema& schema, const std::string& table, const Tensor& keys,
                           const std::optional<v1::KeyRange>& range) {
  STARLING_ASSIGN_OR_RETURN(const v1::TableOptions* options, schema.table(table));
  KeyItem item{.table = table, .dim = options->dim(), .keys = keys, .range = range};
  if (options->has_range()) {
    item.placement = {.low = options->range().lo(), .high = options->range().hi()};
  }
  if (!range.has_value()) {
    STARLING_RETURN_IF_ERROR(keys.expect(table + ".keys", DType::kUInt64, 1));
    for (const uint64_t key :
         item.placement.by_range() ? keys.values<uint64_t>() : std::span<const uint64_t>()) {
      if (item.placement.holds(static_cast<Key>(key))) continue;
      return invalid_argument("{}: key {} lies outside of its range", table, key);
    }
    return item;
  }
  if (keys.dtype() != DType::kInvalid) return invalid_argument("{}: keys and a range", table);
  if (!item.placement.by_range()) return invalid_argument("{} is not a range table", table);
  if (range->lo() < item.placement.low || range->hi() > item.placement.high ||
      range->hi() <= range->lo() || range->hi() - range->lo() > kRangeKeysMax) {
    return invalid_argument("{}: [{}, {}) is empty, too long or outside of [{}, {})", table,
                            range->lo(), range->hi(), item.placement.low, item.placement.high);
  }
  return item;
}

Status expect_rows(const Tensor& tensor, const std::string& what, size_t rows, size_t columns) {
  STARLING_RETURN_IF_ERROR(tensor.expect(what, DType::kFloat32, columns == 0 ? 1 : 2));
  const bool fits = static_cast<size_t>(tensor.shape()[0]) == rows &&
                    (columns == 0 || static_cast<size_t>(tensor.shape()[1]) == columns);
  if (fits) return absl::OkStatus();
  return invalid_argument("{}: {} for {} keys of {} weights", what, tensor.describe(), rows,
                          columns);
}

void each_position(const Positions& positions, size_t all, const auto& visit) {
  if (positions.all) {
    for (size_t i = 0; i < all; ++i) visit(static_cast<uint32_t>(i));
  } else {
    for (const uint32_t position : positions.list) visit(position);
  }
}

// The positions of each shard; those of `among` alone.
std::vector<Positions> cut_keys(const ShardRoutes& routes, const KeyItem& item,
                                const Positions& among) {
  std::vector<Positions> out(routes.shards());
  if (routes.shards() == 1) {
    out[0] = among;
    return out;
  }
  each_position(among, item.size(), [&](uint32_t i) {
    out[routes.owner(item.placement, item.key(i))].list.push_back(i);
  });
  return out;
}

// Rows of a tensor, without a copy when it is all of them.
Tensor take_rows(const Tensor& from, const Positions& positions) {
  if (positions.all) return from;
  const size_t row = from.elements() == 0 ? 0 : from.bytes() / static_cast<size_t>(from.shape()[0]);
  std::vector<int64_t> shape = from.shape();
  shape[0] = static_cast<int64_t>(positions.list.size());
  Tensor out = Tensor::allocate(from.dtype(), std::move(shape));
  Buffer buffer = out.buffer();
  std::byte* to = buffer.mutable_data();
  for (const uint32_t position : positions.list) {
    std::memcpy(to, from.buffer().data() + position * row, row);
    to += row;
  }
  return out;
}

void put_rows(const Tensor& from, const Positions& positions, Tensor& to) {
  if (positions.all) {
    to = from;
    return;
  }
  const size_t row = positions.list.empty() ? 0 : from.bytes() / positions.list.size();
  Buffer buffer = to.buffer();
  const std::byte* source = from.buffer().data();
  for (const uint32_t position : positions.list) {
    std::memcpy(buffer.mutable_data() + position * row, source, row);
    source += row;
  }
}

// The keys at the positions of an item.
Tensor keys_at(const KeyItem& item, const Positions& positions) {
  if (!item.range.has_value()) return take_rows(item.keys, positions);
  std::vector<uint64_t> keys;
  each_position(positions, item.size(), [&](uint32_t i) { keys.push_back(value(item.key(i))); });
  return Tensor::of<uint64_t>({static_cast<int64_t>(keys.size())}, keys);
}

uint32_t add(Message& message, Tensor tensor) {
  message.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(message.tensors.size() - 1);
}

// A tensor of a reply, checked.
StatusOr<Tensor> reply_tensor(const Message& reply, uint32_t index, DType dtype,
                              const std::vector<int64_t>& shape) {
  if (index < reply.tensors.size() && reply.tensors[index].dtype() == dtype &&
      reply.tensors[index].shape() == shape) {
    return reply.tensors[index];
  }
  return internal_error("an answer of {} tensors has none of the shape that was asked for",
                        reply.tensors.size());
}

// One variable: which of its parts lie where.
struct DenseItem {
  std::string variable;
  DenseSplit split;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t first_part() const { return split.part_of(begin); }
  uint32_t last_part() const { return split.part_of(end - 1); }
};

StatusOr<DenseItem> dense_item(const ClientSchema& schema, const std::string& name, uint64_t begin,
                               uint64_t end) {
  STARLING_ASSIGN_OR_RETURN(const v1::DenseOptions* options, schema.variable(name));
  DenseItem item{.variable = name, .split = DenseSplit::of(*options), .begin = begin, .end = end};
  if (end <= begin || end > item.split.elements) {
    return invalid_argument("{}: elements [{}, {}) of {}", name, begin, end, item.split.elements);
  }
  return item;
}

StatusOr<DenseItem> dense_item(const ClientSchema& schema, const DenseValues& values) {
  STARLING_RETURN_IF_ERROR(values.values.expect(values.variable, DType::kFloat32, 1));
  return dense_item(schema, values.variable, values.begin,
                    values.begin + static_cast<uint64_t>(values.values.elements()));
}

std::vector<Positions> cut_parts(const ShardRoutes& routes, const DenseItem& item,
                                 const Positions& among) {
  std::vector<Positions> out(routes.shards());
  const auto place = [&](uint32_t part) {
    out[routes.owner_of_bucket(item.split.bucket(part))].list.push_back(part);
  };
  if (among.all) {
    for (uint32_t part = item.first_part(); part <= item.last_part(); ++part) place(part);
  } else {
    for (const uint32_t part : among.list) place(part);
  }
  return out;
}

// Calls visit(begin, end) for each run of elements that the parts make.
void each_run(const DenseItem& item, const Positions& parts, const auto& visit) {
  for (size_t i = 0; i < parts.list.size();) {
    const uint64_t begin = std::max(item.begin, item.split.begin(parts.list[i]));
    uint32_t last = parts.list[i];
    for (++i; i < parts.list.size() && parts.list[i] == last + 1; ++i) ++last;
    visit(begin, std::min(item.end, item.split.end(last)));
  }
}

Tensor elements(const Tensor& values, uint64_t begin, uint64_t end) {
  const Buffer slice = values.buffer().slice(begin * sizeof(float), (end - begin) * sizeof(float));
  return *Tensor::make(DType::kFloat32, {static_cast<int64_t>(end - begin)}, slice);
}

// Cuts keys and dense parts; what is sent and taken is left to the kinds.
class ItemOperation : public PsOperation {
 public:
  using PsOperation::PsOperation;
  StatusOr<std::vector<Piece>> cut(const ShardRoutes& routes, const Piece* refused) override {
    const size_t items = keys_.size() + dense_.size();
    std::vector<Piece> pieces(routes.shards());
    for (uint32_t shard = 0; shard < routes.shards(); ++shard) {
      pieces[shard].shard = shard;
      pieces[shard].items.resize(items);
      pieces[shard].is_recut = refused != nullptr;
    }
    for (size_t i = 0; i < items; ++i) {
      const Positions among = refused != nullptr ? refused->items[i] : Positions{.all = true};
      std::vector<Positions> cuts = i < keys_.size()
                                        ? cut_keys(routes, keys_[i], among)
                                        : cut_parts(routes, dense_[i - keys_.size()], among);
      for (uint32_t shard = 0; shard < routes.shards(); ++shard) {
        pieces[shard].items[i] = std::move(cuts[shard]);
      }
    }
    std::erase_if(pieces, [](const Piece& piece) {
      return std::all_of(piece.items.begin(), piece.items.end(),
                         [](const Positions& positions) { return positions.empty(); });
    });
    return pieces;
  }
  Status take(const ShardRoutes&, const Piece&, Message) override { return absl::OkStatus(); }

 protected:
  const Positions& of_dense(const Piece& piece, size_t i) const {
    return piece.items[keys_.size() + i];
  }
  std::vector<KeyItem> keys_;
  std::vector<DenseItem> dense_;
};

class PullOperation final : public ItemOperation {
 public:
  PullOperation(bool creates, std::vector<KeyPull> parts, std::vector<KeyItem> items,
                PsClient::DoneOr<std::vector<PulledKeys>> done)
      : ItemOperation(Method::kPsPull, creates), parts_(std::move(parts)), done_(std::move(done)) {
    keys_ = std::move(items);
    pulled_.resize(parts_.size());
  }

  Message request(const ShardRoutes&, const Piece& piece) const override {
    Message message;
    v1::PullOption* option = message.meta.mutable_pull();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (piece.items[i].empty()) continue;
      v1::KeyPullPart* part = option->add_keys();
      part->set_table(parts_[i].table);
      part->set_create(parts_[i].create);
      part->set_with_found(parts_[i].with_found);
      part->set_existing_only(parts_[i].existing_only);
      if (parts_[i].range.has_value() && !piece.is_recut) {
        *part->mutable_key_range() = *parts_[i].range;
      } else {
        part->set_keys_tensor(add(message, keys_at(keys_[i], piece.items[i])));
      }
    }
    return message;
  }

  Status take(const ShardRoutes&, const Piece& piece, Message reply) override {
    int at = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (piece.items[i].empty()) continue;
      if (at >= reply.meta.pull_reply().keys_size()) {
        return internal_error("{}: an answer has too few parts", parts_[i].table);
      }
      STARLING_RETURN_IF_ERROR(
          take_part(i, piece.items[i], reply.meta.pull_reply().keys(at++), reply));
    }
    return absl::OkStatus();
  }

  void finish(const Status& status) override {
    if (!status.ok()) return done_(status);
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].existing_only) {
        pulled_[i] = sorted(i);
      } else {
        ensure(i);
      }
    }
    done_(std::move(pulled_));
  }

 private:
  void ensure(size_t i) {
    const auto n = static_cast<int64_t>(keys_[i].size());
    if (pulled_[i].values.dtype() == DType::kInvalid) {
      pulled_[i].values = Tensor::allocate(DType::kFloat32, {n, keys_[i].dim});
    }
    if (parts_[i].with_found && pulled_[i].found.dtype() == DType::kInvalid) {
      pulled_[i].found = Tensor::allocate(DType::kUInt8, {n});
    }
  }

  Status take_part(size_t i, const Positions& positions, const v1::KeyPullReply& part,
                   const Message& reply) {
    const int64_t dim = keys_[i].dim;
    if (parts_[i].existing_only) {
      if (part.keys_tensor() >= reply.tensors.size()) return internal_error("no keys in an answer");
      const Tensor& keys = reply.tensors[part.keys_tensor()];
      STARLING_RETURN_IF_ERROR(keys.expect("keys of an answer", DType::kUInt64, 1));
      STARLING_ASSIGN_OR_RETURN(
          const Tensor values,
          reply_tensor(reply, part.values_tensor(), DType::kFloat32, {keys.elements(), dim}));
      found_[i].emplace_back(keys, values);
      return absl::OkStatus();
    }
    const auto n = static_cast<int64_t>(positions.all ? keys_[i].size() : positions.list.size());
    STARLING_ASSIGN_OR_RETURN(const Tensor values,
                              reply_tensor(reply, part.values_tensor(), DType::kFloat32, {n, dim}));
    if (!positions.all) ensure(i);
    put_rows(values, positions, pulled_[i].values);
    if (!parts_[i].with_found) return absl::OkStatus();
    STARLING_ASSIGN_OR_RETURN(const Tensor found,
                              reply_tensor(reply, part.found_tensor(), DType::kUInt8, {n}));
    put_rows(found, positions, pulled_[i].found);
    return absl::OkStatus();
  }

  // The keys of all shards in ascending order.
  PulledKeys sorted(size_t i) {
    const size_t dim = keys_[i].dim;
    std::vector<std::pair<uint64_t, const float*>> rows;
    for (const auto& [keys, values] : found_[i]) {
      for (size_t at = 0; at < keys.values<uint64_t>().size(); ++at) {
        rows.emplace_back(keys.values<uint64_t>()[at], &values.values<float>()[at * dim]);
      }
    }
    std::sort(rows.begin(), rows.end());
    const auto n = static_cast<int64_t>(rows.size());
    PulledKeys out{.values = Tensor::allocate(DType::kFloat32, {n, keys_[i].dim}),
                   .found = {},
                   .keys = Tensor::allocate(DType::kUInt64, {n})};
    for (size_t at = 0; at < rows.size(); ++at) {
      out.keys.mutable_values<uint64_t>()[at] = rows[at].first;
      std::copy_n(rows[at].second, dim, &out.values.mutable_values<float>()[at * dim]);
    }
    return out;
  }

  const std::vector<KeyPull> parts_;
  PsClient::DoneOr<std::vector<PulledKeys>> done_;
  std::vector<PulledKeys> pulled_;
  std::map<size_t, std::vector<std::pair<Tensor, Tensor>>> found_;  // existing_only, by shard
};

class PushGradOperation final : public ItemOperation {
 public:
  PushGradOperation(std::vector<KeyGrad> keys, std::vector<DenseValues> dense,
                    std::vector<KeyItem> key_items, std::vector<DenseItem> dense_items)
      : ItemOperation(Method::kPsPushGrad, true),
        grads_(std::move(keys)),
        values_(std::move(dense)) {
    keys_ = std::move(key_items);
    dense_ = std::move(dense_items);
  }
  PsClient::DoneStatus done;

  Message request(const ShardRoutes&, const Piece& piece) const override {
    Message message;
    v1::PushGradOption* option = message.meta.mutable_push_grad();
    for (size_t i = 0; i < grads_.size(); ++i) {
      const Positions& positions = piece.items[i];
      if (positions.empty()) continue;
      v1::KeyGradPart* part = option->add_keys();
      part->set_table(grads_[i].table);
      part->set_no_create(grads_[i].no_create);
      if (grads_[i].range.has_value() && !piece.is_recut) {
        *part->mutable_range() = *grads_[i].range;
      } else {
        part->set_keys_tensor(add(message, keys_at(keys_[i], positions)));
      }
      part->set_grads_tensor(add(message, take_rows(grads_[i].grads, positions)));
      if (grads_[i].shows.dtype() != DType::kInvalid) {
        part->set_shows_tensor(add(message, take_rows(grads_[i].shows, positions)));
      }
      if (grads_[i].clicks.dtype() != DType::kInvalid) {
        part->set_clicks_tensor(add(message, take_rows(grads_[i].clicks, positions)));
      }
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      each_run(dense_[i], of_dense(piece, i), [&](uint64_t begin, uint64_t end) {
        v1::DenseGradPart* part = option->add_dense();
        part->set_variable(values_[i].variable);
        part->mutable_range()->set_begin(begin);
        part->mutable_range()->set_end(end);
        part->set_grads_tensor(add(message, elements(values_[i].values, begin - values_[i].begin,
                                                     end - values_[i].begin)));
      });
    }
    return message;
  }
  void finish(const Status& status) override { done(status); }

 private:
  const std::vector<KeyGrad> grads_;
  const std::vector<DenseValues> values_;
};

class PushOperation final : public ItemOperation {
 public:
  PushOperation(std::vector<KeyValues> keys, std::vector<DenseValues> dense,
                std::vector<KeyItem> key_items, std::vector<DenseItem> dense_items)
      : ItemOperation(Method::kPsPush, true), rows_(std::move(keys)), values_(std::move(dense)) {
    keys_ = std::move(key_items);
    dense_ = std::move(dense_items);
  }
  PsClient::DoneStatus done;

  Message request(const ShardRoutes&, const Piece& piece) const override {
    Message message;
    v1::PushOption* option = message.meta.mutable_push();
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Positions& positions = piece.items[i];
      if (positions.empty()) continue;
      v1::KeyValuesPart* part = option->add_keys();
      part->set_table(rows_[i].table);
      part->set_erase(rows_[i].erase);
      if (rows_[i].range.has_value() && !piece.is_recut) {
        *part->mutable_range() = *rows_[i].range;
      } else {
        part->set_keys_tensor(add(message, keys_at(keys_[i], positions)));
      }
      if (!rows_[i].erase) {
        part->set_values_tensor(add(message, take_rows(rows_[i].values, positions)));
      }
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      each_run(dense_[i], of_dense(piece, i), [&](uint64_t begin, uint64_t end) {
        v1::DenseValuesPart* part = option->add_dense();
        part->set_variable(values_[i].variable);
        part->mutable_range()->set_begin(begin);
        part->mutable_range()->set_end(end);
        part->set_values_tensor(add(message, elements(values_[i].values, begin - values_[i].begin,
                                                      end - values_[i].begin)));
      });
    }
    return message;
  }
  void finish(const Status& status) override { done(status); }

 private:
  const std::vector<KeyValues> rows_;
  const std::vector<DenseValues> values_;
};

class PullDenseOperation final : public ItemOperation {
 public:
  PullDenseOperation(std::vector<DenseCopy> known, std::vector<DenseItem> items,
                     PsClient::DoneOr<std::vector<DenseCopy>> done)
      : ItemOperation(Method::kPsPull, false),
        known_(known),
        copies_(known),
        done_(std::move(done)) {
    dense_ = std::move(items);
    is_fresh_.resize(known_.size());
  }

  Message request(const ShardRoutes& routes, const Piece& piece) const override {
    Message message;
    const v1::Shard& shard = routes.shard(piece.shard);
    for (size_t i = 0; i < dense_.size(); ++i) {
      const auto version = known_[i].versions.find({shard.node(), shard.lane()});
      each_run(dense_[i], of_dense(piece, i), [&](uint64_t begin, uint64_t end) {
        v1::DensePullPart* part = message.meta.mutable_pull()->add_dense();
        part->set_variable(dense_[i].variable);
        part->mutable_elements()->set_begin(begin);
        part->mutable_elements()->set_end(end);
        if (version != known_[i].versions.end()) part->set_known_version(version->second);
      });
    }
    return message;
  }

  Status take(const ShardRoutes& routes, const Piece& piece, Message reply) override {
    const v1::Shard& shard = routes.shard(piece.shard);
    const v1::PullReply& answer = reply.meta.pull_reply();
    int at = 0;
    Status status;
    for (size_t i = 0; i < dense_.size(); ++i) {
      each_run(dense_[i], of_dense(piece, i), [&](uint64_t begin, uint64_t end) {
        if (!status.ok()) return;
        if (at >= answer.dense_size()) {
          status = internal_error("{}: an answer has too few parts", dense_[i].variable);
          return;
        }
        const v1::DensePullReply& part = answer.dense(at++);
        copies_[i].versions[{shard.node(), shard.lane()}] = part.version();
        if (part.unchanged()) return;
        const auto n = static_cast<int64_t>(end - begin);
        const auto values = reply_tensor(reply, part.values_tensor(), DType::kFloat32, {n});
        if (!values.ok()) {
          status = values.status();
          return;
        }
        put(i, begin, *values);
      });
    }
    return status;
  }

  void finish(const Status& status) override {
    if (!status.ok()) return done_(status);
    done_(std::move(copies_));
  }

 private:
  void put(size_t i, uint64_t begin, const Tensor& values) {
    const auto n = static_cast<int64_t>(dense_[i].end - dense_[i].begin);
    Tensor& whole = copies_[i].values;
    if (!is_fresh_[i]) {
      // The caller's copy stays as it is.
      Tensor fresh = Tensor::allocate(DType::kFloat32, {n});
      if (whole.dtype() == DType::kFloat32) {
        std::copy_n(whole.values<float>().begin(), n, fresh.mutable_values<float>().begin());
      }
      whole = std::move(fresh);
      is_fresh_[i] = true;
    }
    const auto from = values.values<float>();
    std::copy(from.begin(), from.end(),
              whole.mutable_values<float>().begin() +
                  static_cast<std::ptrdiff_t>(begin - dense_[i].begin));
  }

  const std::vector<DenseCopy> known_;
  std::vector<DenseCopy> copies_;
  std::vector<bool> is_fresh_;
  PsClient::DoneOr<std::vector<DenseCopy>> done_;
};

class RawOperation final : public PsOperation {
 public:
  RawOperation(Method method, bool is_numbered, std::vector<ShardMessage> messages,
               PsClient::DoneOr<std::vector<Message>> done)
      : PsOperation(method, is_numbered),
        messages_(std::move(messages)),
        replies_(messages_.size()),
        done_(std::move(done)) {}

  StatusOr<std::vector<Piece>> cut(const ShardRoutes& routes, const Piece* refused) override {
    if (refused != nullptr) {
      return failed_precondition("the map has changed to version {}; cut the request anew",
                                 routes.version());
    }
    std::vector<Piece> pieces;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].shard >= routes.shards()) {
        return invalid_argument("shard {} of {}", messages_[i].shard, routes.shards());
      }
      pieces.push_back({.shard = messages_[i].shard, .number = i, .items = {}});
    }
    return pieces;
  }
  Message request(const ShardRoutes&, const Piece& piece) const override {
    return messages_[piece.number].message;
  }
  Status take(const ShardRoutes&, const Piece& piece, Message reply) override {
    replies_[piece.number] = std::move(reply);
    return absl::OkStatus();
  }
  void finish(const Status& status) override {
    if (!status.ok()) return done_(status);
    done_(std::move(replies_));
  }

 private:
  const std::vector<ShardMessage> messages_;
  std::vector<Message> replies_;
  PsClient::DoneOr<std::vector<Message>> done_;
};

}  // namespace

Status ClientSchema::add(const v1::CreateOption& option) {
  for (const v1::TableOptions& table : option.tables()) tables_[table.name()] = table;
  for (const v1::DenseOptions& variable : option.variables()) {
    variables_[variable.name()] = variable;
  }
  if (tables_.size() + variables_.size() <= kNamesMax) return absl::OkStatus();
  return resource_exhausted("a job has at most {} tables and variables", kNamesMax);
}

StatusOr<const v1::TableOptions*> ClientSchema::table(const std::string& name) const {
  auto it = tables_.find(name);
  if (it == tables_.end()) return not_found("no table named {}", name);
  return &it->second;
}

StatusOr<const v1::DenseOptions*> ClientSchema::variable(const std::string& name) const {
  auto it = variables_.find(name);
  if (it == variables_.end()) return not_found("no variable named {}", name);
  return &it->second;
}

StatusOr<std::unique_ptr<PsOperation>> make_pull(const ClientSchema& schema,
                                                 std::vector<KeyPull> parts,
                                                 PsClient::DoneOr<std::vector<PulledKeys>>& done) {
  std::vector<KeyItem> items;
  bool creates = false;
  for (const KeyPull& part : parts) {
    STARLING_ASSIGN_OR_RETURN(KeyItem item, key_item(schema, part.table, part.keys, part.range));
    if (part.existing_only && !part.range.has_value()) {
      return invalid_argument("{}: existing_only needs a range", part.table);
    }
    items.push_back(std::move(item));
    creates |= part.create;
  }
  return std::make_unique<PullOperation>(creates, std::move(parts), std::move(items),
                                         std::move(done));
}

StatusOr<std::unique_ptr<PsOperation>> make_push_grad(const ClientSchema& schema,
                                                      std::vector<KeyGrad> keys,
                                                      std::vector<DenseValues> dense,
                                                      PsClient::DoneStatus& done) {
  std::vector<KeyItem> items;
  for (const KeyGrad& part : keys) {
    STARLING_ASSIGN_OR_RETURN(KeyItem item, key_item(schema, part.table, part.keys, part.range));
    STARLING_RETURN_IF_ERROR(expect_rows(part.grads, part.table + ".grads", item.size(), item.dim));
    if (part.shows.dtype() != DType::kInvalid) {
      STARLING_RETURN_IF_ERROR(expect_rows(part.shows, part.table + ".shows", item.size(), 0));
    }
    if (part.clicks.dtype() != DType::kInvalid) {
      STARLING_RETURN_IF_ERROR(expect_rows(part.clicks, part.table + ".clicks", item.size(), 0));
    }
    items.push_back(std::move(item));
  }
  std::vector<DenseItem> dense_items;
  for (const DenseValues& part : dense) {
    STARLING_ASSIGN_OR_RETURN(const DenseItem item, dense_item(schema, part));
    if (item.split.begin(item.first_part()) != item.begin ||
        item.split.end(item.last_part()) != item.end) {
      return invalid_argument("{}: a gradient covers whole parts; [{}, {}) does not", part.variable,
                              item.begin, item.end);
    }
    dense_items.push_back(item);
  }
  auto operation = std::make_unique<PushGradOperation>(std::move(keys), std::move(dense),
                                                       std::move(items), std::move(dense_items));
  operation->done = std::move(done);
  return operation;
}

StatusOr<std::unique_ptr<PsOperation>> make_push(const ClientSchema& schema,
                                                 std::vector<KeyValues> keys,
                                                 std::vector<DenseValues> dense,
                                                 PsClient::DoneStatus& done) {
  std::vector<KeyItem> items;
  for (const KeyValues& part : keys) {
    STARLING_ASSIGN_OR_RETURN(KeyItem item, key_item(schema, part.table, part.keys, part.range));
    if (!part.erase) {
      STARLING_RETURN_IF_ERROR(
          expect_rows(part.values, part.table + ".values", item.size(), item.dim));
    }
    items.push_back(std::move(item));
  }
  std::vector<DenseItem> dense_items;
  for (const DenseValues& part : dense) {
    STARLING_ASSIGN_OR_RETURN(const DenseItem item, dense_item(schema, part));
    dense_items.push_back(item);
  }
  auto operation = std::make_unique<PushOperation>(std::move(keys), std::move(dense),
                                                   std::move(items), std::move(dense_items));
  operation->done = std::move(done);
  return operation;
}

StatusOr<std::unique_ptr<PsOperation>> make_pull_dense(
    const ClientSchema& schema, std::vector<DenseCopy> known,
    PsClient::DoneOr<std::vector<DenseCopy>>& done) {
  std::vector<DenseItem> items;
  for (DenseCopy& copy : known) {
    STARLING_ASSIGN_OR_RETURN(const v1::DenseOptions* options, schema.variable(copy.variable));
    if (copy.end == 0) copy.end = DenseSplit::of(*options).elements;
    STARLING_ASSIGN_OR_RETURN(const DenseItem item,
                              dense_item(schema, copy.variable, copy.begin, copy.end));
    const auto elements = static_cast<int64_t>(copy.end - copy.begin);
    // Without the values the versions mean nothing.
    if (copy.values.dtype() != DType::kFloat32 || copy.values.elements() != elements) {
      copy.values = Tensor();
      copy.versions.clear();
    }
    items.push_back(item);
  }
  return std::make_unique<PullDenseOperation>(std::move(known), std::move(items), std::move(done));
}

std::unique_ptr<PsOperation> make_raw(Method method, bool is_numbered,
                                      std::vector<ShardMessage> messages,
                                      PsClient::DoneOr<std::vector<Message>> done) {
  return std::make_unique<RawOperation>(method, is_numbered, std::move(messages), std::move(done));
}

Status add_dense_grads(const ShardRoutes& routes, const v1::DenseOptions& variable,
                       const DenseValues& values, std::vector<Message>& messages) {
  ClientSchema schema;
  v1::CreateOption option;
  *option.add_variables() = variable;
  STARLING_RETURN_IF_ERROR(schema.add(option));
  STARLING_ASSIGN_OR_RETURN(const DenseItem item, dense_item(schema, values));
  if (item.split.begin(item.first_part()) != item.begin ||
      item.split.end(item.last_part()) != item.end || messages.size() != routes.shards()) {
    return invalid_argument("{}: a gradient covers whole parts; [{}, {}) does not", values.variable,
                            item.begin, item.end);
  }
  const std::vector<Positions> cuts = cut_parts(routes, item, Positions{.all = true});
  for (uint32_t shard = 0; shard < routes.shards(); ++shard) {
    each_run(item, cuts[shard], [&](uint64_t begin, uint64_t end) {
      v1::DenseGradPart* part = messages[shard].meta.mutable_push_grad()->add_dense();
      part->set_variable(values.variable);
      part->mutable_range()->set_begin(begin);
      part->mutable_range()->set_end(end);
      part->set_grads_tensor(
          add(messages[shard], elements(values.values, begin - values.begin, end - values.begin)));
    });
  }
  return absl::OkStatus();
}

}  // namespace starling
