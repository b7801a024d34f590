// Schema is a list of keys with their type, default, unit, bounds and meaning, bound to the fields
// of a plain struct.
//
// Uses: base. Threads: any; made, bound and dropped by one owner, while the struct lives.
//
// conf lists the options of a job with it (options.cc), and the wiring of a role lists what a
// room's own options take:
//
//   AdagradOptions options;
//   Schema schema;
//   schema.add("lr", &options.lr, RealRule{.least = 0, .most = 100, .doc = "learning rate"});
//   STARLING_RETURN_IF_ERROR(schema.bind(choice.params, "tables.users.optimizer.adagrad"));
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "conf/units.h"
#include "conf/value.h"

namespace starling {

struct WholeRule {
  int64_t least = 0;
  int64_t most = kInfinite - 1;
  Unit unit = Unit::kNone;
  bool may_be_inf = false;  // `inf` reads as kInfinite
  bool required = false;
  std::string doc;
};

struct RealRule {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
  bool required = false;
  std::string doc;
};

struct TextRule {
  std::vector<std::string> one_of;  // any text when empty
  bool is_name = false;             // letters, digits, _ and -, at most 64
  bool required = false;
  std::string doc;
};

// One rule out of several, with what it takes: {adagrad: {lr: 0.05}}, {count: 2} or plain adagrad.
// The room that has the rules knows their names and binds `params` to its own options.
struct Choice {
  std::string name;  // empty when nothing was given
  ConfValue params;
  Origin origin;
  bool empty() const { return name.empty(); }
};

// A rule that a choice may name, and the numbers that it takes.
struct RuleWords {
  std::string name;
  std::vector<std::string> values;
  std::string main;  // the value that a bare number is, {count: 2}; empty: none
  std::string list;  // the value that is a list of numbers; empty: none
};

// The numbers of a choice by name, {clip: {low: 0, high: 1}}; those of a list are named by its
// first letter and their place, {bucketise: {boundaries: [1, 2]}} has b0 and b1. InvalidArgument:
// no rule of `known`, no value of its rule, or no number, with its origin, `path`, what is allowed
// and what is nearest to it.
StatusOr<std::vector<std::pair<std::string, double>>> numbers_of(const std::string& path,
                                                                 const Choice& choice,
                                                                 std::span<const RuleWords> known);

// One line of --print-config.
struct Setting {
  std::string path;
  std::string value;
  Origin origin;
};

// One line of the list of options.
struct KeyInfo {
  std::string path;     // tables.*.dim for every table's
  std::string type;     // "whole number", "text", ...
  std::string allowed;  // "1 to 64", empty when anything of the type is
  std::string initial;  // the default; empty when there is none
  std::string doc;
};

class Schema {
 public:
  void add(std::string key, bool* target, std::string doc);
  void add(std::string key, int64_t* target, const WholeRule& rule);
  void add(std::string key, uint64_t* target, std::string doc);
  void add(std::string key, double* target, const RealRule& rule);
  void add(std::string key, std::string* target, const TextRule& rule);
  // One text, or a list of them.
  void add(std::string key, std::vector<std::string>* target, std::string doc);
  // A number or a list of them; the rule is that of each.
  void add(std::string key, std::vector<double>* target, const RealRule& rule);
  void add(std::string key, Choice* target, std::string doc);
  // Several rules at once: {unseen_days: 30, capacity: 1000000}.
  void add(std::string key, std::vector<Choice>* target, std::string doc);

  void add_section(std::string key, Schema section);
  // `grow` appends one element and gives the schema of it, which is bound before the next call.
  // `model` describes an element.
  void add_list(std::string key, std::string doc, Schema model, std::function<Schema()> grow);
  // The same for a map whose keys are names.
  void add_map(std::string key, std::string doc, Schema model,
               std::function<Schema(const std::string&)> grow);

  // Writes what `value` (a map, or null for all defaults) says into the bound fields. `path` is the
  // value's own, for messages and settings. Appends to `settings`, when given, a line per key,
  // defaults included.
  //
  // InvalidArgument with a line per problem: where it was written, the key, what is wrong, what is
  // allowed and, for a key or word that is not known, the nearest that is. Fields of good keys are
  // written all the same.
  Status bind(const ConfValue& value, std::string_view path,
              std::vector<Setting>* settings = nullptr) const;

  // Every key, in the order added. `path` goes before them.
  std::vector<KeyInfo> keys(std::string_view path = "") const;

 private:
  struct Bind;
  struct Entry {
    KeyInfo info;  // its path is the key alone
    bool required = false;
    // Null when the key was not given.
    std::function<void(const ConfValue*, const std::string& path, Bind&)> take;
    std::function<std::vector<KeyInfo>(std::string_view path)> inner;  // empty for a plain value
  };

  void add_entry(Entry entry) { entries_.push_back(std::move(entry)); }
  void bind_map(const ConfValue* value, const std::string& path, Bind& bind) const;
  void refuse_unknown(const ConfValue& map, const std::string& path, Bind& bind) const;

  std::vector<Entry> entries_;
};

// The word of `known` that takes the fewest edits (a swap of neighbours is one) to come from
// `word`; empty when there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace starling
