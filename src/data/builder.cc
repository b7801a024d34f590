#include "data/builder.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/rng.h"
#include "base/whole.h"

namespace starling {
namespace {

// In [0, 1), the same for the same place in a file.
double draw(uint64_t offset, uint64_t seed) {
  return static_cast<double>(hash_number(offset, seed) >> 11) * 0x1p-53;
}

}  // namespace

StatusOr<RecordFilter> RecordFilter::make(const FormatOptions& options) {
  RecordFilter filter;
  const DataRule& rule = options.split.rule;
  const bool by_column = rule.name == "equals" || rule.name == "below" || rule.name == "from";
  if (rule.name == "rate") {
    for (const auto& [name, value] : rule.values) {
      if (name == "from") {
        filter.from = value;
      } else if (name == "to") {
        filter.to = value;
      } else if (name == "seed") {
        STARLING_ASSIGN_OR_RETURN(filter.split_seed, whole_of<uint64_t>(value, "split.rate.seed"));
      } else {
        return invalid_argument("split: rate has no value named {}", name);
      }
    }
    if (!(filter.from >= 0 && filter.from < filter.to && filter.to <= 1))
      return invalid_argument("split: rate from {} to {} is no part of [0, 1)", filter.from,
                              filter.to);
  } else if (!by_column && !rule.name.empty() && rule.name != "all") {
    return invalid_argument("split: no rule named {}; there are all, rate, equals, below and from",
                            rule.name);
  }
  if ((by_column || !options.split.column.empty()) && options.name != "csv") {
    return invalid_argument("split: {} is split by rate, only csv by a column", options.name);
  }
  const double rate = options.negatives_rate;
  if (!(rate >= 0 && rate <= 1))
    return invalid_argument("negatives_rate is {}, it must lie in 0 .. 1", rate);
  if (rate > 0) filter.negatives_rate = rate;
  filter.negatives_seed = mix64(options.seed ^ 0x6e65676174697665);
  return filter;
}

bool RecordFilter::in_split(uint64_t offset) const {
  if (from == 0 && to == 1) return true;
  const double at = draw(offset, split_seed);
  return at >= from && at < to;
}

bool RecordFilter::keeps_negative(uint64_t offset) const {
  return negatives_rate >= 1 || draw(offset, negatives_seed) < negatives_rate;
}

SampleBuilder::SampleBuilder(const FieldPlans& plans, const RecordFilter& filter,
                             bool labels_optional)
    : plans_(plans), filter_(filter), labels_optional_(labels_optional) {}

void SampleBuilder::begin(SampleBlock& block) {
  block_ = &block;
  numbers_ = block.begin();
  std::fill_n(numbers_, plans_.schema->numbers(), kMissing);
  keys_.clear();
  last_field_ = 0;
  sorted_ = true;
  id_.clear();
  group_ = 0;
}

bool SampleBuilder::fail(std::string_view field, std::string reason) {
  field_ = field;
  reason_ = std::move(reason);
  return false;
}

bool SampleBuilder::add_keys(const FieldPlan& plan, std::string_view text) {
  const std::string& separator = plan.options.separator;
  while (!text.empty()) {
    const size_t end = separator.empty() ? text.npos : text.find(separator);
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) {
      const StatusOr<Key> key = plan.key_of(part);
      if (!key.ok()) return fail(plan.options.name, std::string(message_of(key.status())));
      add_key(plan.slot, *key);
    }
    if (end == text.npos) break;
    text.remove_prefix(end + separator.size());
  }
  return true;
}

bool SampleBuilder::set_number(const FieldPlan& plan, uint32_t index, double x) {
  if (!(std::fabs(x) <= FLT_MAX))
    return fail(plan.options.name, fmt::format("{} does not fit a float", x));
  numbers_[plan.slot + index] = static_cast<float>(x);
  return true;
}

bool SampleBuilder::add_numbers(const FieldPlan& plan, std::string_view text) {
  const std::string& separator = plan.options.separator;
  for (uint32_t i = 0; i < plan.size; ++i) {
    const bool last = i + 1 == plan.size;
    const size_t end = separator.empty() ? text.npos : text.find(separator);
    if (last != (end == text.npos))
      return fail(plan.options.name, fmt::format("'{}' is not {} numbers", text, plan.size));
    const std::string_view part = text.substr(0, end);
    double x = 0;
    if (!part.empty()) {
      if (!parse_number(part, x))
        return fail(plan.options.name, fmt::format("'{}' is no number", part));
      if (!set_number(plan, i, x)) return false;
    }
    if (!last) text.remove_prefix(end + separator.size());
  }
  return true;
}

bool SampleBuilder::add_text(const FieldPlan& plan, std::string_view text) {
  if (text.empty() && plan.options.fallback) text = *plan.options.fallback;
  if (plan.options.kind == FieldKind::kId) {
    set_id(text);
    return true;
  }
  if (plan.options.kind == FieldKind::kGroup) {
    uint64_t number = 0;
    set_group(parse_unsigned(text, number) ? number : hash_text(text, 0));
    return true;
  }
  if (text.empty()) return true;
  return plan.has_keys() ? add_keys(plan, text) : add_numbers(plan, text);
}

bool SampleBuilder::fill_fallbacks() {
  for (const FieldPlan& plan : plans_.fields) {
    if (!plan.options.fallback) continue;
    const bool has_value =
        plan.has_keys() ? std::any_of(keys_.begin(), keys_.end(),
                                      [&](const Entry& entry) { return entry.field == plan.slot; })
                        : plan.has_numbers() && !std::isnan(numbers_[plan.slot]);
    if (!has_value && !add_text(plan, {})) return false;
  }
  return true;
}

void SampleBuilder::cross_of(const FieldPlans::Cross& cross) {
  crossed_.assign(1, static_cast<Key>(cross.seed));
  for (const uint32_t field : cross.of) {
    partial_.clear();
    for (const Key before : crossed_) {
      for (const Entry& entry : keys_) {
        if (entry.field != field) continue;
        if (partial_.size() == cross.keys_max) break;
        partial_.push_back(static_cast<Key>(hash_number(value(entry.key), value(before))));
      }
    }
    crossed_.swap(partial_);
  }
}

void SampleBuilder::add_crosses() {
  for (const FieldPlans::Cross& cross : plans_.crosses) {
    cross_of(cross);
    for (const Key key : crossed_) add_key(cross.field, key);
  }
}

// A label must be there; other numbers that are missing become 0.
bool SampleBuilder::check_labels() {
  if (labels_optional_) return true;
  const SampleSchema& schema = *plans_.schema;
  for (uint32_t i = schema.label_at(); i < schema.weight_at(); ++i) {
    if (std::isnan(numbers_[i])) return fail(schema.labels[i - schema.label_at()], "is missing");
  }
  return true;
}

void SampleBuilder::write_keys(ParseCounts& counts) {
  if (!sorted_) {
    std::stable_sort(keys_.begin(), keys_.end(),
                     [](const Entry& a, const Entry& b) { return a.field < b.field; });
  }
  uint32_t field = 0, of_field = 0;
  for (const Entry& entry : keys_) {
    of_field = entry.field == field ? of_field + 1 : 1;
    field = entry.field;
    if (of_field > plans_.schema->keys[field].keys_max) {
      ++counts.keys_dropped;
      continue;
    }
    block_->add_key(field, entry.key);
  }
}

bool SampleBuilder::commit(uint64_t offset, ParseCounts& counts) {
  if (!check_labels()) return false;
  const SampleSchema& schema = *plans_.schema;
  if (!schema.labels.empty() && is_negative(numbers_[schema.label_at()]) &&
      !filter_.keeps_negative(offset)) {
    ++counts.skipped_negatives;
    return true;
  }
  // Not given, a sample weighs 1 and was shown once.
  if (schema.has_weight && std::isnan(numbers_[schema.weight_at()]))
    numbers_[schema.weight_at()] = 1;
  if (schema.has_show && std::isnan(numbers_[schema.show_at()])) numbers_[schema.show_at()] = 1;
  if (!plans_.crosses.empty()) add_crosses();
  write_keys(counts);
  block_->end(id_, group_);
  ++counts.samples;
  return true;
}

void SampleBuilder::cancel() { block_->cancel(); }

}  // namespace starling
