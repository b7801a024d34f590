#include "data/criteo.h"

#include <array>

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
};

class CriteoParser final : public LineParser {
 public:
  CriteoParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const Columns> columns)
      : LineParser(std::move(base)), columns_(std::move(columns)) {}

 private:
  Outcome parse_line(std::string_view line, SampleBuilder& builder) override;

  std::shared_ptr<const Columns> columns_;
};

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
  if (column != kColumns) {
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
  if (!options.split.column.empty())
    return invalid_argument("split: criteo is split by rate, not by column");
  auto columns = std::make_shared<Columns>();
  for (const FieldPlan& plan : base->plans.fields) {
    if (!plan.options.cross.empty()) continue;
    STARLING_ASSIGN_OR_RETURN(const size_t column, column_of(plan));
    columns->uses.push_back({column, &plan});
  }
  return std::make_shared<const CriteoFormat>(options, std::move(fields), std::move(base),
                                              std::move(columns));
}

}  // namespace starling
