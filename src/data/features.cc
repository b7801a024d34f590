#include "data/features.h"

#include <algorithm>
#include <unordered_map>

#include "data/lines.h"
#include "data/prefix.h"
#include "data/protobuf.h"

namespace starling {
namespace {

using Wire = ProtobufReader::Wire;

// Field numbers of features.proto.
enum : uint32_t { kKeys = 1, kNumbers = 2, kId = 3, kGroup = 4 };
enum : uint32_t { kName = 1, kNumber = 2, kValues = 3 };

// One Keys or Numbers message. Values that are not packed come one by one.
struct Entry {
  std::string_view name;
  uint64_t number = 0;
  std::vector<std::string_view> values;  // runs of fixed64 or float
};

bool read_entry(std::string_view bytes, size_t value_bytes, Entry& entry) {
  entry.name = {};
  entry.number = 0;
  entry.values.clear();
  ProtobufReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == kName && reader.wire() == Wire::kBytes) {
      entry.name = reader.bytes();
    } else if (reader.field() == kNumber && reader.wire() == Wire::kVarint) {
      entry.number = reader.number();
    } else if (reader.field() == kValues) {
      if (reader.wire() == Wire::kVarint || reader.bytes().size() % value_bytes != 0) return false;
      entry.values.push_back(reader.bytes());
    }
  }
  return !reader.broken();
}

template <typename T, typename Visit>
bool for_each_value(const Entry& entry, Visit visit) {
  for (const std::string_view run : entry.values) {
    for (size_t at = 0; at < run.size(); at += sizeof(T)) {
      T number;
      std::memcpy(&number, run.data() + at, sizeof(T));
      if (!visit(number)) return false;
    }
  }
  return true;
}

uint64_t fixed64_of(std::string_view bytes) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

// How a dataset's columns are found.
struct Names {
  std::unordered_map<std::string_view, const FieldPlan*> by_column;
  std::vector<const FieldPlan*> keys;  // by number
  struct Place {
    const FieldPlan* plan;
    uint32_t index;
  };
  std::vector<Place> numbers;  // by place
};

class FeaturesParser final : public LineParser {
 public:
  FeaturesParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const Names> names)
      : LineParser(std::move(base)), names_(std::move(names)) {}

 private:
  Outcome parse_line(std::string_view record, SampleBuilder& builder) override;
  void parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                     size_t bad_kept_max) override;
  bool take_keys(std::string_view bytes, SampleBuilder& builder);
  bool take_numbers(std::string_view bytes, SampleBuilder& builder);

  std::shared_ptr<const Names> names_;
  Entry entry_;
};

bool FeaturesParser::take_keys(std::string_view bytes, SampleBuilder& builder) {
  if (!read_entry(bytes, sizeof(uint64_t), entry_)) return builder.fail("", "is no record");
  const FieldPlan* plan = nullptr;
  if (!entry_.name.empty()) {
    const auto it = names_->by_column.find(entry_.name);
    if (it == names_->by_column.end()) return true;  // as columns that nobody reads
    plan = it->second;
  } else if (entry_.number < names_->keys.size()) {
    plan = names_->keys[entry_.number];
  }
  if (plan == nullptr || !plan->has_keys())
    return builder.fail(entry_.name,
                        fmt::format("keys of a field that has none, number {}", entry_.number));
  return for_each_value<uint64_t>(entry_, [&](uint64_t key) {
    builder.add_key(plan->slot, plan->bucketised
                                    ? static_cast<Key>(hash_number(
                                          plan->bucket(static_cast<double>(key)), plan->seed))
                                    : plan->key_of(key));
    return true;
  });
}

bool FeaturesParser::take_numbers(std::string_view bytes, SampleBuilder& builder) {
  if (!read_entry(bytes, sizeof(float), entry_)) return builder.fail("", "is no record");
  uint64_t at = entry_.number;
  uint64_t end = names_->numbers.size();
  if (!entry_.name.empty()) {
    const auto it = names_->by_column.find(entry_.name);
    if (it == names_->by_column.end()) return true;
    if (!it->second->has_numbers()) return builder.fail(entry_.name, "numbers of a field of keys");
    at = it->second->slot;
    end = at + it->second->size;
  }
  return for_each_value<float>(entry_, [&](float number) {
    if (at >= end) return builder.fail(entry_.name, "more numbers than the field has");
    const Names::Place& place = names_->numbers[at++];
    return builder.set_number(*place.plan, place.index, double{number});
  });
}

LineParser::Outcome FeaturesParser::parse_line(std::string_view record, SampleBuilder& builder) {
  ProtobufReader reader(record);
  while (reader.next()) {
    const bool bytes = reader.wire() == Wire::kBytes;
    if (reader.field() == kKeys && bytes) {
      if (!take_keys(reader.bytes(), builder)) return Outcome::kBad;
    } else if (reader.field() == kNumbers && bytes) {
      if (!take_numbers(reader.bytes(), builder)) return Outcome::kBad;
    } else if (reader.field() == kId && bytes) {
      builder.set_id(reader.bytes());
    } else if (reader.field() == kGroup && reader.wire() == Wire::kFixed64) {
      builder.set_group(fixed64_of(reader.bytes()));
    }
  }
  if (reader.broken()) builder.fail("", "is no record");
  return reader.broken() || !builder.fill_fallbacks() ? Outcome::kBad : Outcome::kSample;
}

void FeaturesParser::parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                                   size_t bad_kept_max) {
  start(bad_kept_max);
  const uint32_t first = out.samples();
  std::string_view rest = chunk.bytes;
  uint64_t number = chunk.line;
  while (!rest.empty()) {
    const uint64_t offset = chunk.offset + (chunk.bytes.size() - rest.size());
    const StatusOr<RecordSpan> span = next_record(rest);
    // Chunks are cut at whole records, so only a caller that did not do so comes here.
    if (!span.ok() || span->prefix_bytes == 0 || span->total() > rest.size()) {
      builder().fail("", "is cut off");
      ++result.counts.records;
      report_bad(rest, offset, number, result);
      break;
    }
    take_record(rest.substr(span->prefix_bytes, span->bytes), offset, number, out, result);
    rest.remove_prefix(span->total());
    if (number != 0) ++number;
  }
  base().plans.finish_numbers(out, first);
}

class FeaturesFormat final : public Format {
 public:
  FeaturesFormat(const FormatOptions& options, std::vector<FieldOptions> fields,
                 std::shared_ptr<const ParserBase> base, std::shared_ptr<const Names> names)
      : Format(options, std::move(fields), base->plans.schema, RecordKind::kPrefixed),
        base_(std::move(base)),
        names_(std::move(names)) {}

  StatusOr<std::unique_ptr<Parser>> parser(std::string_view /*head*/) const override {
    return std::make_unique<FeaturesParser>(base_, names_);
  }

 private:
  std::shared_ptr<const ParserBase> base_;
  std::shared_ptr<const Names> names_;
};

StatusOr<uint32_t> key_field_of(const SampleSchema& schema, const Entry& entry) {
  if (entry.name.empty()) {
    if (entry.number < schema.keys.size()) return static_cast<uint32_t>(entry.number);
    return invalid_argument("a record has keys of field {}, there are {}", entry.number,
                            schema.keys.size());
  }
  for (uint32_t i = 0; i < schema.keys.size(); ++i) {
    if (schema.keys[i].name == entry.name) return i;
  }
  return invalid_argument("a record has keys of field {}, which is not there", entry.name);
}

}  // namespace

void append_prefix(uint64_t record_bytes, std::string& out) { append_varint(record_bytes, out); }

void encode_sample(const SampleBlock& block, uint32_t sample, std::string& out) {
  std::string entry, packed;
  const auto flush = [&](uint32_t kind, uint64_t number) {
    entry.clear();
    if (number != 0) {
      append_varint(uint64_t{kNumber} << 3, entry);
      append_varint(number, entry);
    }
    append_bytes(kValues, packed, entry);
    append_bytes(kind, entry, out);
    packed.clear();
  };
  uint32_t field = 0;
  block.for_each_key(sample, [&](uint32_t of, Key key) {
    if (of != field && !packed.empty()) flush(kKeys, field);
    field = of;
    packed.append(reinterpret_cast<const char*>(&key), sizeof(key));
  });
  if (!packed.empty()) flush(kKeys, field);
  const std::span<const float> numbers = block.numbers(sample);
  if (!numbers.empty()) {
    packed.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
    flush(kNumbers, 0);
  }
  if (block.schema().has_id) append_bytes(kId, block.id(sample), out);
  if (block.schema().has_group) {
    const uint64_t group = block.group(sample);
    append_varint(uint64_t{kGroup} << 3 | static_cast<uint64_t>(Wire::kFixed64), out);
    out.append(reinterpret_cast<const char*>(&group), sizeof(group));
  }
}

Status decode_sample(std::string_view record, SampleBlock& out) {
  const SampleSchema& schema = out.schema();
  float* numbers = out.begin();
  std::fill_n(numbers, schema.numbers(), 0.0F);
  std::vector<std::pair<uint32_t, Key>> keys;
  std::string_view id;
  uint64_t group = 0;
  Entry entry;
  ProtobufReader reader(record);
  while (reader.next()) {
    const bool bytes = reader.wire() == Wire::kBytes;
    if (reader.field() == kKeys && bytes) {
      if (!read_entry(reader.bytes(), sizeof(uint64_t), entry))
        return invalid_argument("not a record of a sample");
      STARLING_ASSIGN_OR_RETURN(const uint32_t field, key_field_of(schema, entry));
      for_each_value<uint64_t>(entry, [&](uint64_t key) {
        keys.emplace_back(field, static_cast<Key>(key));
        return true;
      });
    } else if (reader.field() == kNumbers && bytes) {
      if (!read_entry(reader.bytes(), sizeof(float), entry) || !entry.name.empty())
        return invalid_argument("not a record of a sample");
      uint64_t at = entry.number;
      const bool fits = for_each_value<float>(entry, [&](float number) {
        if (at >= schema.numbers()) return false;
        numbers[at++] = number;
        return true;
      });
      if (!fits) return invalid_argument("a record has more numbers than {}", schema.numbers());
    } else if (reader.field() == kId && bytes) {
      id = reader.bytes();
    } else if (reader.field() == kGroup && reader.wire() == Wire::kFixed64) {
      group = fixed64_of(reader.bytes());
    }
  }
  if (reader.broken()) return invalid_argument("not a record of a sample");
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [field, key] : keys) out.add_key(field, key);
  out.end(id, group);
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const Format>> make_features(const FormatOptions& options,
                                                      std::vector<FieldOptions> fields) {
  if (fields.empty()) return invalid_argument("features needs fields");
  STARLING_ASSIGN_OR_RETURN(auto base, ParserBase::make(options, fields, false));
  auto names = std::make_shared<Names>();
  names->numbers.resize(base->plans.schema->numbers());
  for (const FieldPlan& plan : base->plans.fields) {
    if (plan.has_keys()) names->keys.push_back(&plan);
    if (!plan.options.cross.empty()) continue;
    if (!names->by_column.emplace(plan.options.column, &plan).second)
      return invalid_argument("field {}: column {} is read by another field", plan.options.name,
                              plan.options.column);
    if (!plan.has_numbers()) continue;
    for (uint32_t i = 0; i < plan.size; ++i) names->numbers[plan.slot + i] = {&plan, i};
  }
  return std::make_shared<const FeaturesFormat>(options, std::move(fields), std::move(base),
                                                std::move(names));
}

}  // namespace starling
