// SampleBuilder puts the values of one record together to a sample: transforms, splits by
// separator, fallbacks, crosses, keys_max.
//
// Uses: base. Threads: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"
#include "data/sample.h"
#include "data/transform.h"

namespace starling {

// Which records a dataset takes by where they start.
struct RecordFilter {
  double from = 0;  // of the split by rate
  double to = 1;
  uint64_t split_seed = 0;
  double negatives_rate = 1;
  uint64_t negatives_seed = 0;

  // InvalidArgument: rates outside of [0, 1] or in the wrong order.
  static StatusOr<RecordFilter> make(const FormatOptions& options);
  bool in_split(uint64_t offset) const;
  bool keeps_negative(uint64_t offset) const;
};

class SampleBuilder {
 public:
  // Both outlive it.
  SampleBuilder(const FieldPlans& plans, const RecordFilter& filter, bool labels_optional);

  const FieldPlans& plans() const { return plans_; }

  void begin(SampleBlock& block);
  // Everything below returns false when the record is bad; field() and reason() say why.
  //
  // The whole text of a field's column; empty: missing.
  bool add_text(const FieldPlan& plan, std::string_view text);
  void add_key(uint32_t field, Key key) {
    if (field < last_field_) sorted_ = false;
    last_field_ = field;
    keys_.push_back({field, key});
  }
  // Number `index` of the field.
  bool set_number(const FieldPlan& plan, uint32_t index, double x);
  // Of formats that leave missing values out: gives fields without any value their fallback.
  bool fill_fallbacks();
  void set_id(std::string_view id) { id_ = id; }
  void set_group(uint64_t group) { group_ = group; }
  bool fail(std::string_view field, std::string reason);

  // Ends the sample of the record at `offset`; counts what becomes of it. False: it is bad.
  bool commit(uint64_t offset, ParseCounts& counts);
  void cancel();

  const std::string& field() const { return field_; }
  const std::string& reason() const { return reason_; }

 private:
  struct Entry {
    uint32_t field;
    Key key;
  };

  bool add_keys(const FieldPlan& plan, std::string_view text);
  bool add_numbers(const FieldPlan& plan, std::string_view text);
  bool check_labels();
  void add_crosses();
  void cross_of(const FieldPlans::Cross& cross);
  void write_keys(ParseCounts& counts);

  const FieldPlans& plans_;
  const RecordFilter& filter_;
  const bool labels_optional_;
  SampleBlock* block_ = nullptr;
  float* numbers_ = nullptr;
  std::vector<Entry> keys_;
  std::vector<Key> crossed_, partial_;
  uint32_t last_field_ = 0;
  bool sorted_ = true;
  std::string id_;
  uint64_t group_ = 0;
  std::string field_, reason_;
};

// Whether a label is a negative: 0.
inline bool is_negative(float label) { return label == 0.0F; }

}  // namespace starling
