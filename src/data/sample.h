// SampleBlock holds parsed samples compactly: keys in one array, numbers in another.
//
// A sample costs 8 bytes per key and one more that says its field, 4 per number and 8 for where it
// ends; with ids or groups their own bytes.
// Uses: base. Threads: a value of one owner; many may read it while nobody writes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "data/options.h"
#include "data/tail.h"

namespace starling {

struct KeyField {
  std::string name;
  std::string table;
  FieldPooling pooling = FieldPooling::kSum;
  uint32_t keys_max = kKeysPerFieldMax;  // of one sample
};

// What the samples of a dataset have. The numbers of a sample are its dense values, then its
// labels, then weight, show and click where there are such fields.
struct SampleSchema {
  std::vector<KeyField> keys;      // in the order of the options: key fields are numbered so
  std::vector<std::string> dense;  // a field of size n is there n times
  std::vector<std::string> labels;
  bool has_weight = false;
  bool has_show = false;
  bool has_click = false;
  bool has_id = false;
  bool has_group = false;

  uint32_t label_at() const { return static_cast<uint32_t>(dense.size()); }
  uint32_t weight_at() const { return label_at() + static_cast<uint32_t>(labels.size()); }
  uint32_t show_at() const { return weight_at() + (has_weight ? 1 : 0); }
  uint32_t click_at() const { return show_at() + (has_show ? 1 : 0); }
  uint32_t numbers() const { return click_at() + (has_click ? 1 : 0); }
};

class SampleBlock {
 public:
  explicit SampleBlock(std::shared_ptr<const SampleSchema> schema);

  const SampleSchema& schema() const { return *schema_; }
  const std::shared_ptr<const SampleSchema>& shared_schema() const { return schema_; }
  uint32_t samples() const { return static_cast<uint32_t>(ends_.size()); }
  uint64_t keys() const { return keys_.size(); }

  std::span<const float> numbers(uint32_t sample) const {
    return {numbers_.data() + size_t{sample} * stride_, stride_};
  }
  std::span<const float> dense(uint32_t sample) const {
    return numbers(sample).first(schema_->label_at());
  }
  std::span<const float> labels(uint32_t sample) const {
    return numbers(sample).subspan(schema_->label_at(), schema_->labels.size());
  }
  std::string_view id(uint32_t sample) const;  // empty without ids
  uint64_t group(uint32_t sample) const;       // 0 without groups

  // All keys of a sample, by field, in the order of the file inside of a field.
  std::span<const Key> sample_keys(uint32_t sample) const {
    const uint64_t begin = sample == 0 ? 0 : ends_[sample - 1].keys;
    return {keys_.data() + begin, ends_[sample].keys - begin};
  }
  // Calls visit(field, key) for every key of a sample, in that order.
  template <typename Visit>
  void for_each_key(uint32_t sample, Visit visit) const {
    const std::span<const Key> keys = sample_keys(sample);
    const uint8_t* step = steps_.data() + (sample == 0 ? 0 : ends_[sample - 1].steps);
    uint32_t field = 0;
    for (const Key key : keys) {
      uint32_t byte = *step++;
      if (byte >= 0x80) [[unlikely]] {
        uint32_t by = byte & 0x7f;
        for (int shift = 7; byte >= 0x80; shift += 7) {
          byte = *step++;
          by |= (byte & 0x7f) << shift;
        }
        byte = by;
      }
      field += byte;
      visit(field, key);
    }
  }

  // Writing: begin, then keys with fields never falling, then end or cancel.
  //
  // The numbers of the new sample, to be written all of them; valid until the next begin.
  float* begin() {
    field_ = 0;
    return numbers_.room(stride_);
  }
  void add_key(uint32_t field, Key key) {
    keys_.push(key);
    add_step(field - field_);
    field_ = field;
  }
  // For a writer that knows its fields: room for n keys and their steps, see add_keys().
  Key* key_room(size_t n) { return keys_.room(n); }
  uint8_t* step_room(size_t n) { return steps_.room(n); }
  // Takes n keys and n steps written there. A step is the difference to the key before's field (of
  // the first key to 0), below 128.
  void add_keys(size_t n) {
    keys_.take(n);
    steps_.take(n);
  }
  void end() {
    if (schema_->has_id || schema_->has_group) return end({}, 0);
    numbers_.take(stride_);
    ends_.push({static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(steps_.size())});
  }
  void end(std::string_view id, uint64_t group);
  void cancel();

  // A copy of a sample of a block with the same schema.
  void append(const SampleBlock& from, uint32_t sample);
  // Numbers of samples [from, samples()), row by row, for transforms after parsing.
  std::span<float> numbers_from(uint32_t sample) {
    return {numbers_.data() + size_t{sample} * stride_, (size_t{samples()} - sample) * stride_};
  }
  // Forgets all samples and keeps the memory for others.
  void clear();
  // Gives back memory that is not used.
  void compact();
  size_t bytes() const;  // of memory, unused room included

 private:
  struct Ends {
    uint32_t keys;
    uint32_t steps;
  };

  void add_step(uint32_t by) {
    while (by >= 0x80) {
      steps_.push(static_cast<uint8_t>(by | 0x80));
      by >>= 7;
    }
    steps_.push(static_cast<uint8_t>(by));
  }

  std::shared_ptr<const SampleSchema> schema_;
  size_t stride_;
  Tail<Key> keys_;
  Tail<uint8_t> steps_;  // per key, a varint
  Tail<float> numbers_;  // (samples, stride)
  Tail<Ends> ends_;      // (samples)
  Tail<char> ids_;
  Tail<uint32_t> id_ends_;  // (samples), of datasets with ids
  Tail<uint64_t> groups_;   // (samples), of datasets with groups
  uint32_t field_ = 0;      // of the sample being written: of its last key
};

// Where a sample is.
struct SampleRef {
  const SampleBlock* block;
  uint32_t sample;
};

// Keys that one block can hold; a parser refuses more.
inline constexpr uint64_t kBlockKeysMax = uint64_t{1} << 30;

}  // namespace starling
