#include "data/criteo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "data/hash.h"
#include "data/kernels.h"
#include "data/lines.h"

namespace starling {
namespace {

constexpr size_t kColumns = 40;
constexpr size_t kIntegers = 13;

StatusOr<size_t> column_of(const FieldPlan& plan) {
  const std::string& name = plan.options.column;
  if (name == "label") return size_t{0};
  uint64_t number = 0;
  if (parse_unsigned(name, number) && number < kColumns) return static_cast<size_t>(number);
  if (name.size() > 1 && parse_unsigned(std::string_view(name).substr(1), number)) {
    if (name[0] == 'I' && number >= 1 && number <= kIntegers) return static_cast<size_t>(number);
    if (name[0] == 'C' && number >= 1 && number <= kColumns - 1 - kIntegers)
      return kIntegers + static_cast<size_t>(number);
  }
  return invalid_argument("field {}: criteo has no column {}; it has label, I1 .. I13, C1 .. C26",
                          plan.options.name, name);
}

// Which column each field reads.
struct Columns {
  struct Use {
    size_t column;
    const FieldPlan* plan;
  };
  std::vector<Use> uses;  // in the order of the fields

  // The same for fields that are plain numbers and hashed keys, so that nearly all lines can be
  // read without a builder: which numbers and keys, by column.
  bool plain = false;
  struct Number {
    size_t column;
    uint32_t slot;
  };
  struct Keyed {
    size_t column;
    uint32_t field;
    uint64_t seed;
  };
  std::vector<Number> numbers;
  std::vector<Keyed> keys;  // fields rise by less than 128
  uint32_t first_label = 0;
};

class CriteoParser final : public LineParser {
 public:
  CriteoParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const Columns> columns)
      : LineParser(std::move(base)), columns_(std::move(columns)) {}

 private:
  Outcome parse_line(std::string_view line, SampleBuilder& builder) override;
  void parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                     size_t bad_kept_max) override;
  size_t parse_piece(std::string_view piece, Chunk at, SampleBlock& out, ParseResult& result);
  bool take_plain(const char* line, const uint32_t* ends, uint64_t offset, SampleBlock& out,
                  ParseCounts& counts);

  std::shared_ptr<const Columns> columns_;
  Tail<uint32_t> tabs_, lines_;
};

// How much is cut at once: the places of its tabs and the text itself stay in the second cache.
constexpr size_t kPieceBytes = 128 << 10;

// A whole number of at most 8 digits from the 8 bytes at `text`, of which `length` are its own.
// False: something else, or longer.
inline bool parse_short(const char* text, size_t length, float& out) {
  uint64_t word = 0;
  std::memcpy(&word, text, sizeof(word));
  const bool negative = (word & 0xff) == '-';
  word >>= negative ? 8 : 0;
  length -= negative ? 1 : 0;
  if (length - 1 >= 8 - (negative ? 1U : 0U)) return false;
  // Digits at the high end, zeros before them.
  word = (word ^ 0x3030303030303030) << (64 - 8 * length);
  if ((((word + 0x7676767676767676) | word) & 0x8080808080808080) != 0) return false;
  word = (word * 10) + (word >> 8);
  const uint64_t number = (((word & 0x000000ff000000ff) * 0x000f424000000064) +
                           (((word >> 16) & 0x000000ff000000ff) * 0x0000271000000001)) >>
                          32;
  const auto magnitude = static_cast<float>(static_cast<int32_t>(number));
  out = negative ? -magnitude : magnitude;
  return true;
}

// A line of 40 columns whose ends stand in `ends`, relative to `line`. False: not such a plain
// line, nothing was done.
bool CriteoParser::take_plain(const char* line, const uint32_t* ends, uint64_t offset,
                              SampleBlock& out, ParseCounts& counts) {
  const Columns& columns = *columns_;
  float* numbers = out.begin();
  for (const Columns::Number& use : columns.numbers) {
    const size_t begin = use.column == 0 ? 0 : ends[use.column - 1] + 1;
    const size_t length = ends[use.column] - begin;
    if (length == 0) {
      numbers[use.slot] = kMissing;
    } else if (!parse_short(line + begin, length, numbers[use.slot])) {
      return false;
    }
  }
  const float label = numbers[columns.first_label];
  if (std::isnan(label)) return false;
  if (is_negative(label) && !base().filter.keeps_negative(offset)) {
    ++counts.skipped_negatives;
    return true;
  }
  Key* keys = out.key_room(columns.keys.size());
  uint8_t* steps = out.step_room(columns.keys.size());
  size_t n = 0;
  uint32_t field = 0;
  for (const Columns::Keyed& use : columns.keys) {
    const size_t begin = ends[use.column - 1] + 1;
    const size_t length = ends[use.column] - begin;
    if (length == 0) continue;
    keys[n] = static_cast<Key>(hash_text({line + begin, length}, use.seed));
    steps[n] = static_cast<uint8_t>(use.field - field);
    field = use.field;
    ++n;
  }
  out.add_keys(n);
  out.end();
  ++counts.samples;
  return true;
}

// Reads the lines that `piece` has whole; the bytes they take.
size_t CriteoParser::parse_piece(std::string_view piece, Chunk at, SampleBlock& out,
                                 ParseResult& result) {
  tabs_.cut(0);
  lines_.cut(0);
  find_both(piece, '\t', '\n', tabs_, lines_);
  // A last line without its end, of the whole file.
  if (piece.size() == at.bytes.size() && piece.back() != '\n')
    lines_.push(static_cast<uint32_t>(piece.size()));
  size_t tab = 0;
  size_t begin = 0;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const uint32_t newline = lines_[i];
    const uint32_t* tabs = tabs_.data() + tab;
    const size_t left = tabs_.size() - tab;
    const uint64_t offset = at.offset + begin;
    bool plain = left >= kColumns - 1 && tabs[kColumns - 2] < newline &&
                 (left == kColumns - 1 || tabs[kColumns - 1] > newline) &&
                 at.bytes.size() - newline > sizeof(uint64_t) && piece[newline - 1] != '\r' &&
                 newline - begin <= base().options.line_bytes_max && offset != 0;
    if (plain && base().filter.in_split(offset)) {
      uint32_t ends[kColumns];
      const auto start = static_cast<uint32_t>(begin);
      for (size_t column = 0; column < kColumns - 1; ++column) ends[column] = tabs[column] - start;
      ends[kColumns - 1] = newline - start;
      plain = take_plain(piece.data() + begin, ends, offset, out, result.counts);
      result.counts.records += plain ? 1 : 0;
      tab += plain ? kColumns - 1 : 0;
    } else {
      plain = false;
    }
    if (!plain) {
      take_line(piece.substr(begin, newline - begin), offset, at.line == 0 ? 0 : at.line + i, out,
                result);
      while (tab < tabs_.size() && tabs_[tab] < newline) ++tab;
    }
    begin = size_t{newline} + 1;
  }
  return std::min(begin, piece.size());
}

void CriteoParser::parse_records(const Chunk& chunk, SampleBlock& out, ParseResult& result,
                                 size_t bad_kept_max) {
  if (!columns_->plain) return LineParser::parse_records(chunk, out, result, bad_kept_max);
  start(bad_kept_max);
  const uint32_t first = out.samples();
  Chunk rest = chunk;
  while (!rest.bytes.empty()) {
    std::string_view piece = rest.bytes.substr(0, kPieceBytes);
    if (piece.size() < rest.bytes.size() && piece.find('\n') == piece.npos)
      piece = rest.bytes.substr(0, rest.bytes.find('\n') + 1);
    if (piece.empty()) piece = rest.bytes;
    const size_t taken = parse_piece(piece, rest, out, result);
    rest.bytes.remove_prefix(taken);
    rest.offset += taken;
    if (rest.line != 0) rest.line += lines_.size();
  }
  base().plans.finish_numbers(out, first);
}

// Whether the fields are such as take_plain() reads.
void find_plain(const ParserBase& base, Columns& columns) {
  const SampleSchema& schema = *base.plans.schema;
  columns.plain = base.plans.crosses.empty() && !schema.has_id && !schema.has_group &&
                  !schema.has_weight && !schema.has_show && !schema.labels.empty() &&
                  !base.options.labels_optional;
  columns.first_label = schema.label_at();
  uint32_t field = 0;
  for (const Columns::Use& use : columns.uses) {
    const FieldPlan& plan = *use.plan;
    if (!plan.options.separator.empty() || plan.options.fallback || plan.size != 1)
      columns.plain = false;
    if (plan.has_numbers()) {
      // Eight bytes can be read from any column but the last ones.
      if (use.column > kIntegers) columns.plain = false;
      columns.numbers.push_back({use.column, plan.slot});
      continue;
    }
    if (!plan.hashed || use.column == 0 || plan.slot - field >= 128) columns.plain = false;
    field = plan.slot;
    columns.keys.push_back({use.column, plan.slot, plan.seed});
  }
  // One label, so that the first one is all of them.
  if (schema.labels.size() != 1) columns.plain = false;
}

LineParser::Outcome CriteoParser::parse_line(std::string_view line, SampleBuilder& builder) {
  std::array<std::string_view, kColumns> values;
  size_t column = 0;
  std::string_view rest = line;
  while (column < kColumns) {
    const size_t tab = rest.find('\t');
    values[column++] = rest.substr(0, tab);
    if (tab == rest.npos) {
      rest = {};
      break;
    }
    rest.remove_prefix(tab + 1);
    if (column == kColumns) {
      builder.fail("", "has more than 40 columns");
      return Outcome::kBad;
    }
  }
  if (column == kColumns - 1 && base().options.labels_optional) {
    // Lines to predict come without the label's column.
    std::move_backward(values.begin(), values.end() - 1, values.end());
    values[0] = {};
  } else if (column != kColumns) {
    builder.fail("", fmt::format("has {} columns, not 40", column));
    return Outcome::kBad;
  }
  for (const Columns::Use& use : columns_->uses) {
    if (!builder.add_text(*use.plan, values[use.column])) return Outcome::kBad;
  }
  return Outcome::kSample;
}

class CriteoFormat final : public Format {
 public:
  CriteoFormat(const FormatOptions& options, std::vector<FieldOptions> fields,
               std::shared_ptr<const ParserBase> base, std::shared_ptr<const Columns> columns)
      : Format(options, std::move(fields), base->plans.schema, RecordKind::kLines),
        base_(std::move(base)),
        columns_(std::move(columns)) {}

  StatusOr<std::unique_ptr<Parser>> parser(std::string_view /*head*/) const override {
    return std::make_unique<CriteoParser>(base_, columns_);
  }

 private:
  std::shared_ptr<const ParserBase> base_;
  std::shared_ptr<const Columns> columns_;
};

}  // namespace

std::vector<FieldOptions> criteo_fields() {
  std::vector<FieldOptions> fields;
  fields.push_back({.name = "label", .kind = FieldKind::kLabel});
  for (size_t i = 1; i <= kIntegers; ++i) {
    fields.push_back({.name = fmt::format("I{}", i),
                      .kind = FieldKind::kDense,
                      .transforms = {{.name = "log", .values = {}}}});
  }
  for (size_t i = 1; i < kColumns - kIntegers; ++i)
    fields.push_back({.name = fmt::format("C{}", i)});
  return fields;
}

StatusOr<std::shared_ptr<const Format>> make_criteo(const FormatOptions& options,
                                                    std::vector<FieldOptions> fields) {
  if (fields.empty()) fields = criteo_fields();
  if (options.header) return invalid_argument("criteo has no header");
  STARLING_ASSIGN_OR_RETURN(auto base, ParserBase::make(options, fields, true));
  auto columns = std::make_shared<Columns>();
  for (const FieldPlan& plan : base->plans.fields) {
    if (!plan.options.cross.empty()) continue;
    STARLING_ASSIGN_OR_RETURN(const size_t column, column_of(plan));
    columns->uses.push_back({column, &plan});
  }
  find_plain(*base, *columns);
  return std::make_shared<const CriteoFormat>(options, std::move(fields), std::move(base),
                                              std::move(columns));
}

}  // namespace starling
