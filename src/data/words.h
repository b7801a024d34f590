// Words takes a line apart at spaces and tabs.
//
// Uses: std. Threads: a value.
#pragma once

#include <string_view>

namespace starling {

class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  // False: there is none left.
  bool next(std::string_view& word) {
    size_t begin = 0;
    while (begin < rest_.size() && is_space(rest_[begin])) ++begin;
    size_t end = begin;
    while (end < rest_.size() && !is_space(rest_[end])) ++end;
    word = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return !word.empty();
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t'; }

  std::string_view rest_;
};

}  // namespace starling
