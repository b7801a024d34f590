// Expression is a condition on the columns of a record, such as `rating >= 8` or
// `income in (">50K", ">50K.")`.
//
//   any      = all { "or" all }
//   all      = term { "and" term }
//   term     = "not" term | "(" any ")" | column [ operator literal | ["not"] "in" "(" literal, ...
//   ")" ] operator = "==" | "=" | "!=" | "<" | "<=" | ">" | ">="
// A column is a word, or in back quotes any text. A literal is a number, a word or text in single
// or double quotes. Against a number columns are compared as numbers, else as text. A column alone
// is its number.
// Uses: base. Threads: any; an expression does not change once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace starling {

class Expression {
 public:
  // InvalidArgument names the place and what was expected.
  static StatusOr<Expression> parse(std::string_view text);

  enum class Compare { kEquals, kBelow, kFrom };
  // Whether a column equals one of the values, lies below or not below the first one.
  static Expression of_column(std::string column, Compare compare,
                              const std::vector<std::string>& values);

  // The columns that it names, each once; evaluate() takes their texts in this order.
  const std::vector<std::string>& columns() const { return columns_; }

  // 1 or 0, or the number of a column alone. False: a column is no number where one is needed;
  // `column` says which.
  bool evaluate(std::span<const std::string_view> values, double& out, uint32_t& column) const;

 private:
  friend class ExpressionReader;
  enum class Op { kOr, kAnd, kNot, kIn, kEqual, kLess, kLessEqual, kNumber };
  struct Literal {
    std::string text;
    double number = 0;
    bool is_number = false;
  };
  // In the order of evaluation: operands stand before their operator.
  struct Node {
    Op op = Op::kNumber;
    uint32_t column = 0;
    std::vector<Literal> literals;
  };

  bool test(const Node& node, std::string_view value, bool& out) const;

  std::vector<std::string> columns_;
  std::vector<Node> nodes_;
};

}  // namespace starling
