#include <algorithm>
#include <limits>

#include "data/lines.h"
#include "data/slots.h"
#include "data/words.h"

namespace starling {
namespace {

constexpr uint64_t kSlotsMax = 1 << 16;
constexpr size_t kUnused = std::numeric_limits<size_t>::max();

// What each slot of a line is for.
struct Slots {
  std::vector<size_t> field_of;  // slot -> index into FieldPlans.fields, or kUnused
  bool more_allowed = false;     // a line may have more slots than these
};

class MultislotParser final : public LineParser {
 public:
  MultislotParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const Slots> slots)
      : LineParser(std::move(base)), slots_(std::move(slots)) {}

 private:
  Outcome parse_line(std::string_view line, SampleBuilder& builder) override;
  bool take_text(Words& words, std::string_view what, SampleBuilder& builder,
                 std::string_view& out);
  bool take_slot(const FieldPlan* plan, size_t slot, uint64_t count, Words& words,
                 SampleBuilder& builder);

  std::shared_ptr<const Slots> slots_;
};

// `1 text`, as ids and contents stand before the slots.
bool MultislotParser::take_text(Words& words, std::string_view what, SampleBuilder& builder,
                                std::string_view& out) {
  std::string_view count;
  if (!words.next(count) || count != "1" || !words.next(out))
    return builder.fail(what, "a line starts with `1 text` for it");
  return true;
}

bool MultislotParser::take_slot(const FieldPlan* plan, size_t slot, uint64_t count, Words& words,
                                SampleBuilder& builder) {
  const std::string name = plan == nullptr ? fmt::format("slot {}", slot) : plan->options.name;
  if (plan != nullptr && plan->has_numbers() && count != 0 && count != plan->size)
    return builder.fail(name, fmt::format("has {} numbers, not {}", count, plan->size));
  if (count == 0 && plan != nullptr) return builder.add_text(*plan, {});
  std::string_view word;
  for (uint64_t i = 0; i < count; ++i) {
    if (!words.next(word))
      return builder.fail(name, fmt::format("the line ends before value {}", i));
    if (plan == nullptr) continue;
    if (plan->has_numbers()) {
      double number = 0;
      if (!parse_number(word, number))
        return builder.fail(name, fmt::format("'{}' is no number", word));
      if (!builder.set_number(*plan, static_cast<uint32_t>(i), number)) return false;
    } else if (!builder.add_text(*plan, word)) {
      return false;
    }
  }
  return true;
}

LineParser::Outcome MultislotParser::parse_line(std::string_view line, SampleBuilder& builder) {
  Words words(line);
  std::string_view word;
  if (base().options.with_id) {
    if (!take_text(words, "id", builder, word)) return Outcome::kBad;
    builder.set_id(word);
  }
  if (base().options.with_content && !take_text(words, "content", builder, word))
    return Outcome::kBad;
  size_t slot = 0;
  for (; words.next(word); ++slot) {
    uint64_t count = 0;
    if (slot >= slots_->field_of.size() && !slots_->more_allowed) {
      builder.fail("", fmt::format("has more than {} slots", slots_->field_of.size()));
      return Outcome::kBad;
    }
    if (!parse_unsigned(word, count)) {
      builder.fail(fmt::format("slot {}", slot), fmt::format("'{}' is no number of values", word));
      return Outcome::kBad;
    }
    const size_t field = slot < slots_->field_of.size() ? slots_->field_of[slot] : kUnused;
    const FieldPlan* plan = field == kUnused ? nullptr : &base().plans.fields[field];
    if (!take_slot(plan, slot, count, words, builder)) return Outcome::kBad;
  }
  if (slot < slots_->field_of.size()) {
    builder.fail("", fmt::format("has {} slots, not {}", slot, slots_->field_of.size()));
    return Outcome::kBad;
  }
  return Outcome::kSample;
}

StatusOr<Slots> bind_slots(const FormatOptions& options, const std::vector<FieldOptions>& fields) {
  Slots slots;
  slots.field_of.assign(options.columns.size(), kUnused);
  size_t next = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    const FieldOptions& field = fields[i];
    if (!field.cross.empty() || (options.with_id && field.kind == FieldKind::kId)) continue;
    const std::string& name = field.column.empty() ? field.name : field.column;
    const auto it = std::find(options.columns.begin(), options.columns.end(), name);
    uint64_t number = next;
    if (it != options.columns.end()) {
      number = static_cast<uint64_t>(it - options.columns.begin());
    } else if (!options.columns.empty()) {
      return invalid_argument("field {}: no slot {}; there are {}", field.name, name,
                              fmt::join(options.columns, ", "));
    } else if (!field.column.empty()) {
      if (!parse_unsigned(field.column, number) || number >= kSlotsMax)
        return invalid_argument("field {}: column {} is no number of a slot below {}", field.name,
                                field.column, kSlotsMax);
      slots.more_allowed = true;
    }
    next = number + 1;
    if (number >= slots.field_of.size()) slots.field_of.resize(number + 1, kUnused);
    if (slots.field_of[number] != kUnused)
      return invalid_argument("field {}: slot {} is read by another field", field.name, number);
    slots.field_of[number] = i;
  }
  return slots;
}

class MultislotFormat final : public Format {
 public:
  MultislotFormat(const FormatOptions& options, std::vector<FieldOptions> fields,
                  std::shared_ptr<const ParserBase> base, std::shared_ptr<const Slots> slots)
      : Format(options, std::move(fields), base->plans.schema, RecordKind::kLines),
        base_(std::move(base)),
        slots_(std::move(slots)) {}

  StatusOr<std::unique_ptr<Parser>> parser(std::string_view /*head*/) const override {
    return std::make_unique<MultislotParser>(base_, slots_);
  }

 private:
  std::shared_ptr<const ParserBase> base_;
  std::shared_ptr<const Slots> slots_;
};

}  // namespace

StatusOr<std::shared_ptr<const Format>> make_multislot(const FormatOptions& options,
                                                       std::vector<FieldOptions> fields) {
  if (fields.empty()) return invalid_argument("multislot needs fields, one per slot");
  if (options.with_id && std::none_of(fields.begin(), fields.end(), [](const FieldOptions& field) {
        return field.kind == FieldKind::kId;
      })) {
    fields.push_back({.name = "id", .kind = FieldKind::kId});
  }
  STARLING_ASSIGN_OR_RETURN(auto base, ParserBase::make(options, fields, false));
  STARLING_ASSIGN_OR_RETURN(Slots slots, bind_slots(options, fields));
  return std::make_shared<const MultislotFormat>(options, std::move(fields), std::move(base),
                                                 std::make_shared<const Slots>(std::move(slots)));
}

}  // namespace starling
