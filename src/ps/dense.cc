#include "ps/dense.h"

#include <algorithm>

#include "ps/client.h"
#include "ps/prepared.h"

namespace starling {
namespace {

StatusOr<std::span<const float>> values_at(const Message& request, uint32_t index,
                                           const std::string& what, uint64_t elements) {
  STARLING_ASSIGN_OR_RETURN(const Tensor* tensor,
                            tensor_at(request, index, what, DType::kFloat32, 1));
  if (static_cast<uint64_t>(tensor->elements()) != elements) {
    return invalid_argument("{}: {} values for {} elements", what, tensor->elements(), elements);
  }
  return tensor->values<float>();
}

}  // namespace

DenseVariable::DenseVariable(const v1::DenseOptions& proto, uint64_t seed)
    : proto_(proto), seed_(seed), split_(DenseSplit::of(proto)) {}

StatusOr<std::unique_ptr<DenseVariable>> DenseVariable::make(
    const v1::DenseOptions& proto, uint64_t seed, const std::function<bool(uint32_t)>& owns) {
  std::unique_ptr<DenseVariable> variable(new DenseVariable(proto, seed));
  // Checked on every shard, owner of a part or not, so that all refuse the same options.
  STARLING_RETURN_IF_ERROR(variable->make_part(0).status());
  variable->own(owns);
  return variable;
}

void DenseVariable::own(const std::function<bool(uint32_t)>& owns) {
  for (uint32_t part = 0; part < split_.parts; ++part) {
    if (!owns(split_.bucket(part))) {
      parts_.erase(part);
    } else if (!parts_.contains(part)) {
      StatusOr<std::unique_ptr<DenseTable>> made = make_part(part);
      STARLING_CHECK(made.ok(), "options that made the first part were refused");
      parts_[part] = *std::move(made);
    }
  }
}

StatusOr<std::unique_ptr<DenseTable>> DenseVariable::make_part(uint32_t part) const {
  STARLING_ASSIGN_OR_RETURN(DenseOptions options, dense_options(proto_, seed_));
  options.begin = split_.begin(part);
  options.end = split_.end(part);
  return DenseTable::make(options);
}

Status check_table(const v1::TableOptions& table, uint64_t seed) {
  STARLING_ASSIGN_OR_RETURN(const TableOptions options, table_options(table, seed));
  return Table::make(options).status();
}

StatusOr<std::unique_ptr<DenseTable>> make_dense_table(const v1::DenseOptions& variable,
                                                       uint64_t seed) {
  STARLING_ASSIGN_OR_RETURN(const DenseOptions options, dense_options(variable, seed));
  return DenseTable::make(options);
}

size_t DenseVariable::memory_bytes() const {
  size_t bytes = 0;
  for (const auto& [part, table] : parts_) bytes += table->memory_bytes();
  return bytes;
}

StatusOr<DenseVariable::Range> DenseVariable::range_of(const v1::ElementRange* range) const {
  if (range == nullptr) return Range{0, split_.elements};
  if (range->end() <= range->begin() || range->end() > split_.elements) {
    return invalid_argument("{}: elements [{}, {}) of {}", proto_.name(), range->begin(),
                            range->end(), split_.elements);
  }
  return Range{range->begin(), range->end()};
}

Status DenseVariable::check_owned(const Range& range) const {
  for (uint32_t part = split_.part_of(range.begin);
       part < split_.parts && split_.begin(part) < range.end; ++part) {
    if (!parts_.contains(part)) {
      return invalid_argument("{}: elements [{}, {}) lie on another shard", proto_.name(),
                              split_.begin(part), split_.end(part));
    }
  }
  return absl::OkStatus();
}

Status DenseVariable::check_gradient(const Message& request, const v1::DenseGradPart& part) const {
  STARLING_ASSIGN_OR_RETURN(const Range range,
                            range_of(part.has_range() ? &part.range() : nullptr));
  STARLING_RETURN_IF_ERROR(check_owned(range));
  // The optimizer's step count is one per part, so a part takes its gradient whole.
  const uint32_t first = split_.part_of(range.begin);
  const uint32_t last = split_.part_of(range.end - 1);
  if (split_.begin(first) != range.begin || split_.end(last) != range.end) {
    return invalid_argument("{}: a gradient covers whole parts; [{}, {}) does not", proto_.name(),
                            range.begin, range.end);
  }
  STARLING_ASSIGN_OR_RETURN(
      const auto values,
      values_at(request, part.grads_tensor(), proto_.name() + ".grads", range.end - range.begin));
  if (proto_.nan_policy() == v1::NAN_POLICY_REFUSE && !all_finite(values)) {
    return data_loss("{}: the gradient has a NaN or infinity", proto_.name());
  }
  return absl::OkStatus();
}

Status DenseVariable::check_values(const Message& request, const v1::DenseValuesPart& part) const {
  if (part.content() != v1::CONTENT_WEIGHTS) {
    return unimplemented("{}: variables are set by their weights; state goes through a checkpoint",
                         proto_.name());
  }
  STARLING_ASSIGN_OR_RETURN(const Range range,
                            range_of(part.has_range() ? &part.range() : nullptr));
  STARLING_RETURN_IF_ERROR(check_owned(range));
  STARLING_ASSIGN_OR_RETURN(
      const auto values,
      values_at(request, part.values_tensor(), proto_.name() + ".values", range.end - range.begin));
  if (!all_finite(values)) return invalid_argument("{}: a value is NaN or infinite", proto_.name());
  return absl::OkStatus();
}

void DenseVariable::apply(const Message& request) {
  for (const v1::DenseGradPart& part : request.meta.push_grad().dense()) {
    if (part.variable() != proto_.name()) continue;
    const Range range = *range_of(part.has_range() ? &part.range() : nullptr);
    const auto values = request.tensors[part.grads_tensor()].values<float>();
    for (uint32_t at = split_.part_of(range.begin);
         at < split_.parts && split_.begin(at) < range.end; ++at) {
      const uint64_t begin = split_.begin(at);
      // A part that leaves a NaN out counts it and is otherwise unchanged.
      (void)parts_.at(at)->push(values.subspan(begin - range.begin, split_.end(at) - begin),
                                updates_);
    }
  }
  ++updates_;
  ++version_;
}

void DenseVariable::apply_reduced(std::span<const Message* const> messages, size_t ranks,
                                  uint64_t clock) {
  std::map<uint32_t, std::vector<float>> sums;
  for (const Message* message : messages) {
    for (const v1::DenseGradPart& part : message->meta.push_grad().dense()) {
      if (part.variable() != proto_.name()) continue;
      const Range range = *range_of(part.has_range() ? &part.range() : nullptr);
      const auto values = message->tensors[part.grads_tensor()].values<float>();
      for (uint32_t at = split_.part_of(range.begin);
           at < split_.parts && split_.begin(at) < range.end; ++at) {
        const auto mine =
            values.subspan(split_.begin(at) - range.begin, split_.end(at) - split_.begin(at));
        auto [it, is_first] = sums.try_emplace(at, mine.begin(), mine.end());
        if (!is_first)
          std::transform(mine.begin(), mine.end(), it->second.begin(), it->second.begin(),
                         std::plus<>());
      }
    }
  }
  if (sums.empty()) return;
  for (auto& [at, sum] : sums) {
    if (proto_.reduce() == v1::REDUCE_MEAN) {
      const auto count = static_cast<float>(ranks);
      for (float& x : sum) x /= count;
    }
    (void)parts_.at(at)->push(sum, clock);
  }
  ++updates_;
  ++version_;
}

void DenseVariable::set(const Message& request, const v1::DenseValuesPart& part) {
  const Range range = *range_of(part.has_range() ? &part.range() : nullptr);
  const auto values = request.tensors[part.values_tensor()].values<float>();
  for (uint32_t at = split_.part_of(range.begin); at < split_.parts && split_.begin(at) < range.end;
       ++at) {
    DenseTable& table = *parts_.at(at);
    std::vector<float> weights(table.weights().begin(), table.weights().end());
    const uint64_t first = std::max(range.begin, split_.begin(at));
    const uint64_t last = std::min(range.end, split_.end(at));
    std::copy_n(values.begin() + static_cast<int64_t>(first - range.begin), last - first,
                weights.begin() + static_cast<int64_t>(first - split_.begin(at)));
    const Status status = table.set(weights);
    STARLING_CHECK(status.ok(), "weights of the part's own length were refused");
  }
  ++version_;
}

void DenseVariable::clear() {
  for (auto& [part, table] : parts_) {
    StatusOr<std::unique_ptr<DenseTable>> fresh = make_part(part);
    STARLING_CHECK(fresh.ok(), "options that made a part were refused");
    table = *std::move(fresh);
  }
  ++version_;
}

Status DenseVariable::check_pull(const v1::DensePullPart& part) const {
  if (part.content() != v1::CONTENT_WEIGHTS) {
    return unimplemented("{}: only weights can be pulled; state goes through a checkpoint",
                         proto_.name());
  }
  if (!part.has_elements()) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const Range range, range_of(&part.elements()));
  return check_owned(range);
}

void DenseVariable::pull(const v1::DensePullPart& part, Message& reply) const {
  v1::DensePullReply* out = reply.meta.mutable_pull_reply()->add_dense();
  out->set_variable(proto_.name());
  out->set_version(version_);
  if (part.known_version() == version_) {
    out->set_unchanged(true);
    return;
  }
  std::vector<Range> ranges;
  if (part.has_elements()) {
    ranges.push_back(*range_of(&part.elements()));
  } else {
    for (const auto& [at, table] : parts_) ranges.push_back({split_.begin(at), split_.end(at)});
  }
  uint64_t elements = 0;
  for (const Range& range : ranges) {
    v1::ElementRange* told = out->add_elements();
    told->set_begin(range.begin);
    told->set_end(range.end);
    elements += range.end - range.begin;
  }
  Tensor values = Tensor::allocate(DType::kFloat32, {static_cast<int64_t>(elements)});
  auto to = values.mutable_values<float>().begin();
  for (const Range& range : ranges) {
    for (uint32_t at = split_.part_of(range.begin);
         at < split_.parts && split_.begin(at) < range.end; ++at) {
      const auto weights = parts_.at(at)->weights();
      const uint64_t first = std::max(range.begin, split_.begin(at)) - split_.begin(at);
      const uint64_t last = std::min(range.end, split_.end(at)) - split_.begin(at);
      to = std::copy(weights.begin() + static_cast<int64_t>(first),
                     weights.begin() + static_cast<int64_t>(last), to);
    }
  }
  out->set_values_tensor(static_cast<uint32_t>(reply.tensors.size()));
  reply.tensors.push_back(std::move(values));
}

void DenseVariable::describe(v1::TableStat& out) const {
  out.set_name(proto_.name());
  out.set_bytes(memory_bytes());
  out.set_version(version_);
  uint64_t elements = 0, nonfinite = 0;
  for (const auto& [part, table] : parts_) {
    elements += table->size();
    nonfinite += table->nonfinite();
  }
  out.set_rows(elements);
  out.set_bad_rows(nonfinite);
  out.set_pushes(updates_);
}

}  // namespace starling
