#include "data/sample.h"

#include "base/check.h"

namespace starling {

SampleBlock::SampleBlock(std::shared_ptr<const SampleSchema> schema)
    : schema_(std::move(schema)), stride_(schema_->numbers()) {}

std::string_view SampleBlock::id(uint32_t sample) const {
  if (!schema_->has_id) return {};
  const uint32_t begin = sample == 0 ? 0 : id_ends_[sample - 1];
  return {ids_.data() + begin, id_ends_[sample] - begin};
}

uint64_t SampleBlock::group(uint32_t sample) const {
  return schema_->has_group ? groups_[sample] : 0;
}

void SampleBlock::end(std::string_view id, uint64_t group) {
  STARLING_CHECK(steps_.size() <= UINT32_MAX && ids_.size() + id.size() <= UINT32_MAX,
                 "a block of samples is full");
  numbers_.take(stride_);
  ends_.push({static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(steps_.size())});
  if (schema_->has_id) {
    ids_.append(std::span(id.data(), id.size()));
    id_ends_.push(static_cast<uint32_t>(ids_.size()));
  }
  if (schema_->has_group) groups_.push(group);
}

void SampleBlock::cancel() {
  const bool none = ends_.size() == 0;
  keys_.cut(none ? 0 : ends_[ends_.size() - 1].keys);
  steps_.cut(none ? 0 : ends_[ends_.size() - 1].steps);
}

void SampleBlock::append(const SampleBlock& from, uint32_t sample) {
  STARLING_CHECK(from.stride_ == stride_, "a sample of another schema");
  const std::span<const float> numbers = from.numbers(sample);
  std::copy(numbers.begin(), numbers.end(), begin());
  const uint32_t steps_begin = sample == 0 ? 0 : from.ends_[sample - 1].steps;
  keys_.append(from.sample_keys(sample));
  steps_.append(from.steps_.span().subspan(steps_begin, from.ends_[sample].steps - steps_begin));
  end(from.id(sample), from.group(sample));
}

void SampleBlock::clear() {
  keys_.cut(0);
  steps_.cut(0);
  numbers_.cut(0);
  ends_.cut(0);
  ids_.cut(0);
  id_ends_.cut(0);
  groups_.cut(0);
}

void SampleBlock::compact() {
  keys_.trim();
  steps_.trim();
  numbers_.trim();
  ends_.trim();
  ids_.trim();
  id_ends_.trim();
  groups_.trim();
}

size_t SampleBlock::bytes() const {
  return sizeof(*this) + keys_.capacity() * sizeof(Key) + steps_.capacity() +
         numbers_.capacity() * sizeof(float) + ends_.capacity() * sizeof(Ends) + ids_.capacity() +
         id_ends_.capacity() * sizeof(uint32_t) + groups_.capacity() * sizeof(uint64_t);
}

}  // namespace starling
