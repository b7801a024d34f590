#include "data/csv.h"

#include <algorithm>
#include <optional>

#include "data/expression.h"
#include "data/lines.h"

namespace starling {
namespace {

constexpr size_t kColumnsMax = 1 << 16;

// What a csv dataset needs beside its fields.
struct CsvRules {
  std::optional<Expression> label;
  const FieldPlan* label_field = nullptr;
  std::optional<Expression> split;
};

// Where the columns that are used stand in a file.
struct CsvColumns {
  struct Use {
    size_t column;
    const FieldPlan* plan;
  };
  std::vector<Use> uses;
  std::vector<size_t> label;  // as Expression::columns()
  std::vector<size_t> split;
  size_t count = 0;  // columns that a line must have; 0: at least `needed`
  size_t needed = 0;
};

class CsvParser final : public LineParser {
 public:
  CsvParser(std::shared_ptr<const ParserBase> base, std::shared_ptr<const CsvRules> rules,
            CsvColumns columns)
      : LineParser(base),
        rules_(std::move(rules)),
        columns_(std::move(columns)),
        cutter_(base->options.delimiter, base->options.trim) {}

 private:
  Outcome parse_line(std::string_view line, SampleBuilder& builder) override;
  bool evaluate(const Expression& expression, const std::vector<size_t>& at, SampleBuilder& builder,
                double& out);
  bool has_label(const std::vector<std::string_view>& values) const {
    if (!base().options.labels_optional) return true;
    const auto is_there = [&](size_t column) { return !values[column].empty(); };
    return !columns_.label.empty() &&
           std::all_of(columns_.label.begin(), columns_.label.end(), is_there);
  }

  std::shared_ptr<const CsvRules> rules_;
  CsvColumns columns_;
  CsvCutter cutter_;
  std::vector<std::string_view> arguments_;
};

bool CsvParser::evaluate(const Expression& expression, const std::vector<size_t>& at,
                         SampleBuilder& builder, double& out) {
  arguments_.clear();
  for (const size_t column : at) arguments_.push_back(cutter_.values()[column]);
  uint32_t wrong = 0;
  if (expression.evaluate(arguments_, out, wrong)) return true;
  return builder.fail(expression.columns()[wrong],
                      fmt::format("'{}' is no number", arguments_[wrong]));
}

LineParser::Outcome CsvParser::parse_line(std::string_view line, SampleBuilder& builder) {
  if (!cutter_.cut(line)) {
    builder.fail("", cutter_.reason());
    return Outcome::kBad;
  }
  const std::vector<std::string_view>& values = cutter_.values();
  const bool fits =
      columns_.count != 0 ? values.size() == columns_.count : values.size() >= columns_.needed;
  if (!fits) {
    builder.fail("", fmt::format("has {} columns, not {}{}", values.size(),
                                 columns_.count != 0 ? "" : "at least ",
                                 columns_.count != 0 ? columns_.count : columns_.needed));
    return Outcome::kBad;
  }
  double number = 0;
  if (rules_->split) {
    if (!evaluate(*rules_->split, columns_.split, builder, number)) return Outcome::kBad;
    if (number == 0) return Outcome::kSplit;
  }
  for (const CsvColumns::Use& use : columns_.uses) {
    if (!builder.add_text(*use.plan, values[use.column])) return Outcome::kBad;
  }
  if (rules_->label && has_label(values)) {
    if (!evaluate(*rules_->label, columns_.label, builder, number)) return Outcome::kBad;
    if (!builder.set_number(*rules_->label_field, 0, number)) return Outcome::kBad;
  }
  return Outcome::kSample;
}

StatusOr<size_t> find_column(const std::vector<std::string>& names, const std::string& name,
                             const std::string& who) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  uint64_t number = 0;
  const size_t limit = names.empty() ? kColumnsMax : names.size();
  if (parse_unsigned(name, number) && number < limit) return static_cast<size_t>(number);
  if (names.empty())
    return invalid_argument("{}: column {} is no number below {}, and no names are given", who,
                            name, kColumnsMax);
  return invalid_argument("{}: no column {}; there are {}", who, name, fmt::join(names, ", "));
}

StatusOr<CsvColumns> bind_columns(const ParserBase& base, const CsvRules& rules,
                                  const std::vector<std::string>& names) {
  CsvColumns columns;
  columns.count = names.size();
  const bool labels_optional = base.options.labels_optional;
  const auto need = [&](const std::string& name, const std::string& who) -> StatusOr<size_t> {
    STARLING_ASSIGN_OR_RETURN(const size_t column, find_column(names, name, who));
    columns.needed = std::max(columns.needed, column + 1);
    return column;
  };
  for (const FieldPlan& plan : base.plans.fields) {
    if (!plan.options.cross.empty() || &plan == rules.label_field) continue;
    const bool may_lack = labels_optional && plan.options.kind == FieldKind::kLabel;
    if (may_lack && !find_column(names, plan.options.column, "").ok()) continue;
    STARLING_ASSIGN_OR_RETURN(const size_t column,
                              need(plan.options.column, "field " + plan.options.name));
    columns.uses.push_back({column, &plan});
  }
  if (rules.label) {
    for (const std::string& name : rules.label->columns()) {
      if (labels_optional && !find_column(names, name, "").ok()) {
        columns.label.clear();
        break;
      }
      STARLING_ASSIGN_OR_RETURN(const size_t column, need(name, "label"));
      columns.label.push_back(column);
    }
  }
  if (rules.split) {
    for (const std::string& name : rules.split->columns()) {
      STARLING_ASSIGN_OR_RETURN(const size_t column, need(name, "split"));
      columns.split.push_back(column);
    }
  }
  return columns;
}

// The split by column as an expression, so that both compare alike.
StatusOr<std::optional<Expression>> split_of(const SplitOptions& split) {
  const std::string& rule = split.rule.name;
  if (rule != "equals" && rule != "below" && rule != "from") return std::optional<Expression>();
  if (split.column.empty()) return invalid_argument("split: {} needs a column", rule);
  if (split.values.empty() || (rule != "equals" && split.values.size() != 1))
    return invalid_argument("split: {} needs {}", rule, rule == "equals" ? "values" : "one value");
  return Expression::of_column(split.column,
                               rule == "equals"  ? Expression::Compare::kEquals
                               : rule == "below" ? Expression::Compare::kBelow
                                                 : Expression::Compare::kFrom,
                               split.values);
}

class CsvFormat final : public Format {
 public:
  CsvFormat(const FormatOptions& options, std::vector<FieldOptions> fields,
            std::shared_ptr<const ParserBase> base, std::shared_ptr<const CsvRules> rules)
      : Format(options, std::move(fields), base->plans.schema, RecordKind::kLines),
        base_(std::move(base)),
        rules_(std::move(rules)) {}

  StatusOr<std::unique_ptr<Parser>> parser(std::string_view head) const override {
    std::vector<std::string> names = base_->options.columns;
    if (base_->options.header) {
      STARLING_ASSIGN_OR_RETURN(names, csv_header(base_->options, head));
    }
    STARLING_ASSIGN_OR_RETURN(CsvColumns columns, bind_columns(*base_, *rules_, names));
    return std::make_unique<CsvParser>(base_, rules_, std::move(columns));
  }

 private:
  std::shared_ptr<const ParserBase> base_;
  std::shared_ptr<const CsvRules> rules_;
};

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

CsvCutter::CsvCutter(std::string delimiter, bool trim)
    : delimiter_(std::move(delimiter)), trim_(trim) {}

// At a quote; leaves `at` behind the value's delimiter, or npos behind the last value.
bool CsvCutter::cut_quoted(std::string_view line, size_t& at) {
  const size_t begin = plain_.size();
  ++at;
  while (true) {
    const size_t quote = line.find('"', at);
    if (quote == line.npos) {
      reason_ = fmt::format("has a quote that is not closed in column {}", values_.size());
      return false;
    }
    plain_.append(line, at, quote - at);
    at = quote + 1;
    if (at >= line.size() || line[at] != '"') break;
    plain_ += '"';
    ++at;
  }
  values_.push_back(std::string_view(plain_).substr(begin));
  size_t end = line.find(delimiter_, at);
  const std::string_view between = line.substr(at, end == line.npos ? end : end - at);
  if (!trimmed(between).empty() || (!trim_ && !between.empty())) {
    reason_ = fmt::format("has text behind the quotes of column {}", values_.size() - 1);
    return false;
  }
  at = end == line.npos ? end : end + delimiter_.size();
  return true;
}

bool CsvCutter::cut(std::string_view line) {
  values_.clear();
  plain_.clear();
  plain_.reserve(line.size());  // views into it must stay
  size_t at = 0;
  while (at != line.npos) {
    size_t start = at;
    if (trim_) {
      while (start < line.size() && (line[start] == ' ' || line[start] == '\t') &&
             line.compare(start, delimiter_.size(), delimiter_) != 0)
        ++start;
    }
    if (start < line.size() && line[start] == '"') {
      at = start;
      if (!cut_quoted(line, at)) return false;
      continue;
    }
    const size_t end = line.find(delimiter_, at);
    const std::string_view value = line.substr(at, end == line.npos ? end : end - at);
    values_.push_back(trim_ ? trimmed(value) : value);
    at = end == line.npos ? end : end + delimiter_.size();
  }
  return true;
}

StatusOr<std::vector<std::string>> csv_header(const FormatOptions& options, std::string_view head) {
  if (head.substr(0, kByteOrderMark.size()) == kByteOrderMark)
    head.remove_prefix(kByteOrderMark.size());
  std::string_view line = head.substr(0, head.find('\n'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  CsvCutter cutter(options.delimiter.empty() ? "," : options.delimiter, true);
  if (!cutter.cut(line)) return invalid_argument("the header {}", cutter.reason());
  std::vector<std::string> names;
  for (const std::string_view name : cutter.values()) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      return invalid_argument("the header names column {} twice", name);
    names.emplace_back(name);
  }
  return names;
}

StatusOr<std::shared_ptr<const Format>> make_csv(const FormatOptions& options,
                                                 std::vector<FieldOptions> fields) {
  FormatOptions own = options;
  if (own.delimiter.empty()) own.delimiter = ",";
  if (own.delimiter.find_first_of("\"\n\r") != std::string::npos)
    return invalid_argument("delimiter: quotes and ends of lines cannot be one");
  if (fields.empty()) return invalid_argument("csv needs fields");
  auto rules = std::make_shared<CsvRules>();
  if (!own.label.empty()) {
    STARLING_ASSIGN_OR_RETURN(rules->label, Expression::parse(own.label));
    const bool has_label = std::any_of(fields.begin(), fields.end(), [](const FieldOptions& field) {
      return field.kind == FieldKind::kLabel;
    });
    if (!has_label) fields.push_back({.name = "label", .kind = FieldKind::kLabel});
  }
  STARLING_ASSIGN_OR_RETURN(rules->split, split_of(own.split));
  STARLING_ASSIGN_OR_RETURN(auto base, ParserBase::make(own, fields, true));
  if (rules->label) {
    if (base->plans.schema->labels.size() != 1)
      return invalid_argument("the label's expression gives one label, the fields have {}",
                              base->plans.schema->labels.size());
    for (const FieldPlan& plan : base->plans.fields) {
      if (plan.options.kind == FieldKind::kLabel) rules->label_field = &plan;
    }
  }
  if (!own.header) {
    // Mistakes in names are told now, not with the first file.
    STARLING_RETURN_IF_ERROR(bind_columns(*base, *rules, own.columns).status());
  }
  return std::make_shared<const CsvFormat>(own, std::move(fields), std::move(base),
                                           std::move(rules));
}

}  // namespace starling
