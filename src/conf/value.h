// ConfValue is what was written in a job file, an environment variable or a flag, before it is
// given a type.
//
// Uses: std. Threads: any; all are values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace starling {

// Where a value was written: "job.yaml:3", "environment PS_ENABLE_POLLING", "--set data.epochs";
// "default" for none.
struct Origin {
  std::string text = "default";
  bool operator==(const Origin&) const = default;
};

struct ConfMember;

struct ConfValue {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;                 // of a scalar
  bool quoted = false;              // a quoted scalar is text, even when it looks like a number
  std::vector<ConfValue> items;     // of a list
  std::vector<ConfMember> members;  // of a map, in the order written
  Origin origin;

  // The member under `key`, or nullptr when there is none or this is no map.
  const ConfValue* find(std::string_view key) const;
  ConfValue* find(std::string_view key);

  // In YAML's flow style: {adagrad: {lr: 0.05}}.
  std::string flow() const;
  // "a map", "a list", "nothing", or the scalar in quotes: for messages.
  std::string named() const;
};

struct ConfMember {
  std::string key;
  ConfValue value;
};

// Puts `value` at `path` (a.b.0.c: names of maps, numbers of lists), in place of what was there;
// maps on the way are made. InvalidArgument when the path is not well formed or a list on the way
// has no such item.
Status put(ConfValue& root, std::string_view path, ConfValue value);

}  // namespace starling
