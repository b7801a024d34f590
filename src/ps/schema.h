// ShardSchema turns the options of the proto into those of tables, and says what set of tables and
// variables a job has.
//
// Uses: base, wire, table. Threads: shard-local values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "table/options.h"
#include "wire/message.h"

namespace starling {

inline constexpr size_t kNamesMax = 4096;  // tables and variables of one job

// InvalidArgument names the table, the option and what is allowed.
StatusOr<TableOptions> table_options(const v1::TableOptions& proto, uint64_t seed);
// The variable as a whole; each part takes its own begin and end.
StatusOr<DenseOptions> dense_options(const v1::DenseOptions& proto, uint64_t seed);

class ShardSchema {
 public:
  // Adds what is new; the same again is fine. AlreadyExists: another table or variable of that
  // name, or another seed; the message says which field differs. InvalidArgument,
  // ResourceExhausted: as above; nothing is added then.
  Status add(const v1::CreateOption& option);

  const std::map<std::string, v1::TableOptions>& tables() const { return tables_; }
  const std::map<std::string, v1::DenseOptions>& variables() const { return variables_; }
  uint64_t seed() const { return seed_; }
  // Of everything, in the order of names; the same on all shards.
  uint64_t hash() const;

 private:
  std::map<std::string, v1::TableOptions> tables_;
  std::map<std::string, v1::DenseOptions> variables_;
  uint64_t seed_ = 0;
  bool has_seed_ = false;
};

// How a variable of n elements is cut into parts (DenseOptions of the proto says it in words).
struct DenseSplit {
  uint64_t elements = 0;
  uint32_t parts = 1;
  uint32_t first_bucket = 0;

  static DenseSplit of(const v1::DenseOptions& proto);
  uint64_t begin(uint32_t part) const;
  uint64_t end(uint32_t part) const { return begin(part + 1); }
  uint32_t bucket(uint32_t part) const;
  // The part that holds the element.
  uint32_t part_of(uint64_t element) const;
};

}  // namespace starling
