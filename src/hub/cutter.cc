#include "hub/cutter.h"

#include <algorithm>

#include "data/shuffle.h"

namespace starling {
BatchCutter::BatchCutter(const CutterOptions& options)
    : options_(options),
      // Whole batches, so that none lies in two blocks.
      block_samples_(std::max<uint64_t>(1, (options.shuffle_samples + options.batch_size - 1) /
                                               options.batch_size) *
                     options.batch_size) {}

void BatchCutter::add(std::shared_ptr<const SampleBlock> samples) {
  if (samples->samples() == 0) return;
  waiting_ += samples->samples();
  pending_.push_back({std::move(samples)});
}

std::optional<std::span<const SampleRef>> BatchCutter::next() {
  if (at_ == refs_.size() && !next_block()) return std::nullopt;
  const size_t count = std::min<size_t>(options_.batch_size, refs_.size() - at_);
  const std::span<const SampleRef> out(refs_.data() + at_, count);
  at_ += count;
  ++batches_;
  return out;
}

bool BatchCutter::next_block() {
  if (waiting_ == 0 || (!is_ended_ && waiting_ < block_samples_)) return false;
  held_.clear();
  refs_.clear();
  at_ = 0;
  while (refs_.size() < block_samples_ && !pending_.empty()) {
    Pending& front = pending_.front();
    const auto take = static_cast<uint32_t>(
        std::min<uint64_t>(front.samples->samples() - front.used, block_samples_ - refs_.size()));
    for (uint32_t i = 0; i < take; ++i) refs_.push_back({front.samples.get(), front.used + i});
    held_.push_back(front.samples);
    front.used += take;
    if (front.used == front.samples->samples()) pending_.pop_front();
  }
  waiting_ -= refs_.size();
  if (options_.shuffle_samples > 0) {
    const std::vector<uint32_t> order = permutation(
        {.seed = options_.seed, .epoch = options_.epoch, .item = options_.item, .block = block_},
        static_cast<uint32_t>(refs_.size()));
    std::vector<SampleRef> shuffled;
    shuffled.reserve(refs_.size());
    for (const uint32_t i : order) shuffled.push_back(refs_[i]);
    refs_ = std::move(shuffled);
  }
  ++block_;
  return true;
}

size_t BatchCutter::bytes() const {
  size_t bytes = refs_.size() * sizeof(SampleRef);
  for (const auto& samples : held_) bytes += samples->bytes();
  for (const Pending& pending : pending_) {
    // The one that a block ends in is held by both.
    if (pending.used == 0) bytes += pending.samples->bytes();
  }
  return bytes;
}

}  // namespace starling
