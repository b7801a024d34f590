// FieldPlan is a field's options made ready: how the text or number of a column becomes keys and
// floats.
//
// Uses: base. Threads: any; plans do not change once made.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "data/hash.h"
#include "data/options.h"
#include "data/sample.h"

namespace starling {

// Stands for a missing number until finish_numbers() makes it 0; no text parses to it.
inline constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

// A field's seed: its salt, or the hash of its name.
uint64_t seed_of(const FieldOptions& field);

struct NumberStep {
  enum class Kind { kLog, kClip, kNormalise };
  Kind kind = Kind::kLog;
  double a = 0;  // clip: low; normalise: mean
  double b = 0;  // clip: high; normalise: std
};

double transformed(std::span<const NumberStep> steps, double x);

struct FieldPlan {
  FieldOptions options;
  uint32_t slot = 0;  // of keys: its number among key fields. Of numbers: where the first stands
  uint32_t size = 1;  // numbers per sample
  uint32_t keys_max = 0;  // per sample
  uint64_t seed = 0;
  bool hashed = false;  // of keys
  bool text = false;    // keys are hashed as text, else as numbers
  bool bucketised = false;
  std::vector<NumberStep> steps;
  std::vector<double> boundaries;  // ascending

  bool has_keys() const { return options.kind == FieldKind::kKeys; }
  // A sample's number; false for id and group, which are neither keys nor numbers.
  bool has_numbers() const {
    return !has_keys() && options.kind != FieldKind::kId && options.kind != FieldKind::kGroup;
  }
  // Of bucketised fields: how many boundaries are not above the transformed x.
  uint64_t bucket(double x) const;
  // Of a value's text. InvalidArgument: no number where one is needed.
  StatusOr<Key> key_of(std::string_view value) const;
  // Of a number that is a key, hashed or as it is.
  Key key_of(uint64_t number) const {
    return static_cast<Key>(hashed ? hash_number(number, seed) : number);
  }
};

// All fields of a dataset.
struct FieldPlans {
  std::vector<FieldPlan> fields;  // in the order of the options
  std::shared_ptr<const SampleSchema> schema;
  // Key field number -> index into fields.
  std::vector<uint32_t> key_fields;
  struct Cross {
    uint32_t field;            // key field number
    std::vector<uint32_t> of;  // key field numbers
    uint64_t seed;
    uint32_t keys_max;
  };
  std::vector<Cross> crosses;
  // One byte per number of a sample, 1 where `log` is all its transform, 0 where it has none.
  // Empty: some number has another transform.
  std::vector<uint8_t> logged;

  // Transforms the raw numbers of samples [from, samples()) and turns missing ones to 0.
  void finish_numbers(SampleBlock& block, uint32_t from) const;
};

// `text_columns`: keys are text unless a transform says otherwise (csv, criteo); else numbers.
// InvalidArgument names the field and what is wrong with it.
StatusOr<FieldPlans> plan_fields(const std::vector<FieldOptions>& fields, bool text_columns);

// A whole decimal number with sign, fraction and exponent; not "nan" or "inf". False: it is none.
bool parse_number(std::string_view text, double& out);
bool parse_unsigned(std::string_view text, uint64_t& out);

}  // namespace starling
