// The options of a dataset's format and fields, as plain values: what hub_options.proto says of
// FormatOptions, FieldOptions and SplitOptions, field by field.
//
// Uses: base. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace starling {

enum class FieldKind {
  kKeys,    // to the shards
  kDense,   // float numbers, to the trainer
  kLabel,   // float numbers, to the trainer
  kWeight,  // of the sample
  kShow,    // of the sample's keys, with the push
  kClick,   // of the sample's keys, with the push
  kId,      // text that names the sample and merges samples
  kGroup,   // of per-group metrics
};

// How a segment becomes one vector. A sequence (none) has every key's vector, in order.
enum class FieldPooling { kSum, kMean, kNone };

// A rule by name with its values by name. A name may come several times where the rule takes a
// list.
struct DataRule {
  std::string name;
  std::vector<std::pair<std::string, double>> values;
};

inline constexpr uint32_t kKeysPerFieldMax = 4096;

// One input feature.
struct FieldOptions {
  std::string name;
  FieldKind kind = FieldKind::kKeys;
  std::string table;  // empty: the field's name
  FieldPooling pooling = FieldPooling::kSum;
  uint32_t keys_max = 0;  // 0: kKeysPerFieldMax
  std::string column;     // name or number in the file. Empty: the field's name
  std::string separator;  // splits the column into many keys or numbers. Empty: one
  // In order: hash (salt), log, clip (low, high), normalise (mean, std), bucketise (boundaries
  // b0, b1, ...).
  std::vector<DataRule> transforms;
  std::vector<std::string> cross;       // of these fields, in place of a column
  std::optional<std::string> fallback;  // the column's text where it is missing
  uint64_t salt = 0;                    // of the hash. 0: the hash of the field's name
  uint32_t size = 0;                    // of dense fields and labels, numbers per sample. 0: 1
};

// Which records belong to the dataset.
struct SplitOptions {
  // Empty: all. rate (from, to, in [0, 1); seed): by the hash of where the record starts in its
  // file. equals, below, from: by the values of `column`.
  DataRule rule;
  std::string column;
  std::vector<std::string> values;
};

inline constexpr uint64_t kLineBytesMax = 64 << 20;

// How bytes become samples.
struct FormatOptions {
  std::string name;                  // multislot, criteo, csv, libsvm, libffm or features
  std::string delimiter;             // csv. Empty: ","
  bool header = false;               // csv: the first line names the columns
  std::vector<std::string> columns;  // csv without header: their names. Empty: numbers from 0
  std::string label;                 // csv: an expression such as `rating >= 8`
  bool trim = false;                 // csv: cut spaces around values
  bool with_id = false;              // multislot: lines start with an id
  bool with_content = false;         // multislot: then a content text
  bool labels_optional = false;      // a missing label is 0 and no bad line: for predictions
  uint64_t line_bytes_max = 0;       // longer records are bad ones. 0: kLineBytesMax
  SplitOptions split;
  double negatives_rate = 0;  // keep this part of the samples whose first label is 0. 0: all
  uint64_t seed = 0;          // of the draw of negatives
};

}  // namespace starling
