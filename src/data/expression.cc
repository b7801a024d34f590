#include "data/expression.h"

#include <algorithm>
#include <cctype>

#include "data/transform.h"

namespace starling {

namespace {

constexpr int kDepthMax = 64;
constexpr size_t kNodesMax = 1024;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
         c == '+' || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

// Recursive descent; each function reads one rule of the grammar and adds its nodes.
class ExpressionReader {
 public:
  explicit ExpressionReader(std::string_view text) : text_(text) {}

  StatusOr<Expression> read() {
    STARLING_RETURN_IF_ERROR(read_any(0));
    skip_spaces();
    if (at_ != text_.size()) return wrong("the end");
    if (out_.nodes_.size() > kNodesMax)
      return invalid_argument("an expression of {} terms, at most {}", out_.nodes_.size(),
                              kNodesMax);
    return std::move(out_);
  }

 private:
  using Op = Expression::Op;

  Status wrong(std::string_view expected) const {
    return invalid_argument("expression `{}`: expected {} at '{}'", text_, expected,
                            text_.substr(std::min(at_, text_.size()), 12));
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  bool take(std::string_view token) {
    skip_spaces();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  bool take_word(std::string_view word) {
    skip_spaces();
    if (text_.substr(at_, word.size()) != word) return false;
    const size_t end = at_ + word.size();
    if (end < text_.size() && is_word(text_[end])) return false;
    at_ = end;
    return true;
  }

  Status read_any(int depth) {
    STARLING_RETURN_IF_ERROR(read_all(depth));
    while (take_word("or")) {
      STARLING_RETURN_IF_ERROR(read_all(depth));
      add({Op::kOr, 0, {}});
    }
    return absl::OkStatus();
  }

  Status read_all(int depth) {
    STARLING_RETURN_IF_ERROR(read_term(depth));
    while (take_word("and")) {
      STARLING_RETURN_IF_ERROR(read_term(depth));
      add({Op::kAnd, 0, {}});
    }
    return absl::OkStatus();
  }

  Status read_term(int depth) {
    if (depth > kDepthMax || out_.nodes_.size() > kNodesMax)
      return invalid_argument("expression: nested deeper than {}", kDepthMax);
    if (take_word("not")) {
      STARLING_RETURN_IF_ERROR(read_term(depth + 1));
      add({Op::kNot, 0, {}});
      return absl::OkStatus();
    }
    if (take("(")) {
      STARLING_RETURN_IF_ERROR(read_any(depth + 1));
      return take(")") ? absl::OkStatus() : wrong(")");
    }
    STARLING_ASSIGN_OR_RETURN(const uint32_t column, read_column());
    return read_condition(column);
  }

  Status read_condition(uint32_t column) {
    const bool negated = take_word("not");
    if (take_word("in")) {
      STARLING_RETURN_IF_ERROR(read_list(column));
      if (negated) add({Op::kNot, 0, {}});
      return absl::OkStatus();
    }
    if (negated) return wrong("in");
    // Longer operators first.
    constexpr struct {
      std::string_view token;
      Op op;
      bool negated;
    } kOperators[] = {
        {"==", Op::kEqual, false}, {"!=", Op::kEqual, true}, {"<=", Op::kLessEqual, false},
        {">=", Op::kLess, true},   {"<", Op::kLess, false},  {">", Op::kLessEqual, true},
        {"=", Op::kEqual, false},
    };
    for (const auto& entry : kOperators) {
      if (!take(entry.token)) continue;
      STARLING_ASSIGN_OR_RETURN(Expression::Literal literal, read_literal());
      add({entry.op, column, {std::move(literal)}});
      if (entry.negated) add({Op::kNot, 0, {}});
      return absl::OkStatus();
    }
    add({Op::kNumber, column, {}});
    return absl::OkStatus();
  }

  Status read_list(uint32_t column) {
    if (!take("(")) return wrong("(");
    Expression::Node node{Op::kIn, column, {}};
    do {
      STARLING_ASSIGN_OR_RETURN(Expression::Literal literal, read_literal());
      node.literals.push_back(std::move(literal));
    } while (take(","));
    if (!take(")")) return wrong(")");
    add(std::move(node));
    return absl::OkStatus();
  }

  StatusOr<uint32_t> read_column() {
    skip_spaces();
    std::string name;
    if (take("`")) {
      const size_t end = text_.find('`', at_);
      if (end == text_.npos) return wrong("a closing `");
      name = text_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      name = read_word();
      // In back quotes they are columns like any other.
      for (const std::string_view word : {"and", "or", "not", "in"}) {
        if (name == word) return wrong("a column");
      }
    }
    if (name.empty()) return wrong("a column");
    const auto it = std::find(out_.columns_.begin(), out_.columns_.end(), name);
    if (it == out_.columns_.end()) {
      out_.columns_.push_back(std::move(name));
      return static_cast<uint32_t>(out_.columns_.size() - 1);
    }
    return static_cast<uint32_t>(it - out_.columns_.begin());
  }

  std::string_view read_word() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  StatusOr<Expression::Literal> read_literal() {
    skip_spaces();
    Expression::Literal literal;
    for (const char quote : {'"', '\''}) {
      if (at_ >= text_.size() || text_[at_] != quote) continue;
      const size_t end = text_.find(quote, at_ + 1);
      if (end == text_.npos) return wrong("a closing quote");
      literal.text = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return literal;
    }
    literal.text = read_word();
    if (literal.text.empty()) return wrong("a literal");
    literal.is_number = parse_number(literal.text, literal.number);
    return literal;
  }

  void add(Expression::Node node) { out_.nodes_.push_back(std::move(node)); }

  std::string_view text_;
  size_t at_ = 0;
  Expression out_;
};

StatusOr<Expression> Expression::parse(std::string_view text) {
  return ExpressionReader(text).read();
}

Expression Expression::of_column(std::string column, Compare compare,
                                 const std::vector<std::string>& values) {
  Expression out;
  out.columns_.push_back(std::move(column));
  Node node{compare == Compare::kEquals ? Op::kIn : Op::kLess, 0, {}};
  for (const std::string& text : values) {
    Literal literal{text};
    // Text stays text for equality: "1" and "1.0" are two values of a column.
    if (compare != Compare::kEquals) literal.is_number = parse_number(text, literal.number);
    node.literals.push_back(std::move(literal));
  }
  out.nodes_.push_back(std::move(node));
  if (compare == Compare::kFrom) out.nodes_.push_back({Op::kNot, 0, {}});
  return out;
}

bool Expression::test(const Node& node, std::string_view value, bool& out) const {
  out = false;
  for (const Literal& literal : node.literals) {
    int order = 0;
    if (literal.is_number) {
      double number = 0;
      if (!parse_number(value, number)) return false;
      order = number < literal.number ? -1 : number > literal.number ? 1 : 0;
    } else {
      order = value.compare(literal.text);
    }
    const bool holds = node.op == Op::kLess        ? order < 0
                       : node.op == Op::kLessEqual ? order <= 0
                                                   : order == 0;
    out = out || holds;
  }
  return true;
}

bool Expression::evaluate(std::span<const std::string_view> values, double& out,
                          uint32_t& column) const {
  // Every operator takes what the nodes before it left.
  std::vector<double> stack;
  stack.reserve(nodes_.size());
  for (const Node& node : nodes_) {
    if (node.op == Op::kNot) {
      stack.back() = stack.back() == 0 ? 1 : 0;
    } else if (node.op == Op::kAnd || node.op == Op::kOr) {
      const bool right = stack.back() != 0;
      stack.pop_back();
      const bool left = stack.back() != 0;
      stack.back() = (node.op == Op::kAnd ? left && right : left || right) ? 1 : 0;
    } else {
      column = node.column;
      double number = 0;
      if (node.op == Op::kNumber) {
        if (!parse_number(values[node.column], number)) return false;
      } else {
        bool holds = false;
        if (!test(node, values[node.column], holds)) return false;
        number = holds ? 1 : 0;
      }
      stack.push_back(number);
    }
  }
  out = stack.back();
  return true;
}

}  // namespace starling
