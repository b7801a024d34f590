#include <algorithm>
#include <unordered_map>

#include "data/lines.h"
#include "data/slots.h"
#include "data/words.h"

namespace starling {
namespace {

// Which field takes the values of an index (libsvm) or a field's number (libffm).
struct Takers {
  struct Number {
    const FieldPlan* plan;
    uint32_t index;  // of the field's numbers
  };
  const FieldPlan* label = nullptr;
  const FieldPlan* group = nullptr;
  const FieldPlan* all_keys = nullptr;  // libsvm: every index that no other field takes
  std::unordered_map<uint64_t, const FieldPlan*> keys;
  std::unordered_map<uint64_t, Number> numbers;
  bool with_field = false;  // libffm
};

class PairParser final : public LineParser {
 public:
  PairParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const Takers> takers)
      : LineParser(std::move(base)), takers_(std::move(takers)) {}

 private:
  Outcome parse_line(std::string_view line, SampleBuilder& builder) override;
  bool take_pair(std::string_view word, SampleBuilder& builder);
  bool take_key(const FieldPlan& plan, uint64_t index, double number, std::string_view word,
                SampleBuilder& builder);

  std::shared_ptr<const Takers> takers_;
};

// A key says that something is there, not how much of it.
bool PairParser::take_key(const FieldPlan& plan, uint64_t index, double number,
                          std::string_view word, SampleBuilder& builder) {
  if (plan.bucketised) {
    const uint64_t seed = hash_number(index, plan.seed);
    builder.add_key(plan.slot, static_cast<Key>(hash_number(plan.bucket(number), seed)));
    return true;
  }
  if (number == 0) return true;
  if (number != 1) {
    return builder.fail(plan.options.name,
                        fmt::format("'{}' has another value than 1, and a key has none: bucketise "
                                    "the field, or read the value as dense",
                                    word));
  }
  builder.add_key(plan.slot, plan.key_of(index));
  return true;
}

bool PairParser::take_pair(std::string_view word, SampleBuilder& builder) {
  std::string_view rest = word;
  uint64_t field = 0, index = 0;
  double number = 0;
  const auto part = [&]() {
    const size_t colon = rest.find(':');
    const std::string_view text = rest.substr(0, colon);
    rest = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
    return text;
  };
  const bool read = (!takers_->with_field || parse_unsigned(part(), field)) &&
                    parse_unsigned(part(), index) && parse_number(rest, number);
  if (!read) {
    return builder.fail("", fmt::format("has '{}', which is no {}index:value", word,
                                        takers_->with_field ? "field:" : ""));
  }
  const uint64_t taken_by = takers_->with_field ? field : index;
  if (const auto it = takers_->numbers.find(taken_by); it != takers_->numbers.end())
    return builder.set_number(*it->second.plan, it->second.index, number);
  if (const auto it = takers_->keys.find(taken_by); it != takers_->keys.end())
    return take_key(*it->second, index, number, word, builder);
  return takers_->all_keys == nullptr || take_key(*takers_->all_keys, index, number, word, builder);
}

LineParser::Outcome PairParser::parse_line(std::string_view line, SampleBuilder& builder) {
  Words words(line.substr(0, line.find('#')));
  std::string_view word;
  if (!words.next(word)) {
    builder.fail("", "has no label");
    return Outcome::kBad;
  }
  if (takers_->label != nullptr) {
    double label = 0;
    if (!parse_number(word, label)) {
      builder.fail(takers_->label->options.name, fmt::format("'{}' is no number", word));
      return Outcome::kBad;
    }
    // Some files write the negatives as -1.
    if (!builder.set_number(*takers_->label, 0, label == -1 ? 0 : label)) return Outcome::kBad;
  }
  while (words.next(word)) {
    if (!takers_->with_field && word.substr(0, 4) == "qid:") {
      if (takers_->group != nullptr && !builder.add_text(*takers_->group, word.substr(4)))
        return Outcome::kBad;
    } else if (!take_pair(word, builder)) {
      return Outcome::kBad;
    }
  }
  return builder.fill_fallbacks() ? Outcome::kSample : Outcome::kBad;
}

class PairFormat final : public Format {
 public:
  PairFormat(const FormatOptions& options, std::vector<FieldOptions> fields,
             std::shared_ptr<const ParserBase> base, std::shared_ptr<const Takers> takers)
      : Format(options, std::move(fields), base->plans.schema, RecordKind::kLines),
        base_(std::move(base)),
        takers_(std::move(takers)) {}

  StatusOr<std::unique_ptr<Parser>> parser(std::string_view /*head*/) const override {
    return std::make_unique<PairParser>(base_, takers_);
  }

 private:
  std::shared_ptr<const ParserBase> base_;
  std::shared_ptr<const Takers> takers_;
};

Status add_taker(const FieldPlan& plan, bool named, Takers& takers) {
  const FieldOptions& options = plan.options;
  uint64_t number = 0;
  const bool numbered = parse_unsigned(options.column, number);
  switch (options.kind) {
    case FieldKind::kLabel:
      if (takers.label != nullptr || plan.size != 1) return invalid_argument("there is one label");
      takers.label = &plan;
      return absl::OkStatus();
    case FieldKind::kGroup:
      takers.group = &plan;
      return absl::OkStatus();
    case FieldKind::kKeys:
      if (numbered) {
        if (!takers.keys.emplace(number, &plan).second)
          return invalid_argument("column {} is read by another field", number);
        return absl::OkStatus();
      }
      if (takers.with_field || named || takers.all_keys != nullptr)
        return invalid_argument("column {} is no number of a field or index", options.column);
      takers.all_keys = &plan;
      return absl::OkStatus();
    case FieldKind::kId:
      return invalid_argument("lines of this format have no id");
    default:
      break;
  }
  if (!numbered)
    return invalid_argument("column {} is no number of a field or index", options.column);
  for (uint32_t i = 0; i < plan.size; ++i) {
    if (!takers.numbers.emplace(number + i, Takers::Number{&plan, i}).second)
      return invalid_argument("column {} is read by another field", number + i);
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const Format>> make_pairs(const FormatOptions& options,
                                                   std::vector<FieldOptions> fields,
                                                   bool with_field) {
  STARLING_ASSIGN_OR_RETURN(auto base, ParserBase::make(options, fields, false));
  auto takers = std::make_shared<Takers>();
  takers->with_field = with_field;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].cross.empty()) continue;
    const Status status = add_taker(base->plans.fields[i], !fields[i].column.empty(), *takers);
    if (!status.ok()) return with_context(status, fmt::format("field {}", fields[i].name));
  }
  return std::make_shared<const PairFormat>(options, std::move(fields), std::move(base),
                                            std::move(takers));
}

}  // namespace

StatusOr<std::shared_ptr<const Format>> make_libsvm(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields) {
  if (fields.empty()) fields = {{.name = "label", .kind = FieldKind::kLabel}, {.name = "features"}};
  return make_pairs(options, std::move(fields), false);
}

StatusOr<std::shared_ptr<const Format>> make_libffm(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields) {
  if (fields.empty()) return invalid_argument("libffm needs fields, one per field of the file");
  // A field without a column reads the one of its place among those with keys.
  uint32_t next = 0;
  for (FieldOptions& field : fields) {
    uint64_t number = 0;
    if (field.kind != FieldKind::kKeys || !field.cross.empty()) continue;
    if (field.column.empty() && !parse_unsigned(field.name, number))
      field.column = std::to_string(next);
    ++next;
  }
  return make_pairs(options, std::move(fields), true);
}

}  // namespace starling
