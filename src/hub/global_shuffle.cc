#include "hub/global_shuffle.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "data/features.h"
#include "data/shuffle.h"

namespace starling {
namespace {

constexpr uint32_t kNowhere = UINT32_MAX;
// The shuffle of all samples of an epoch: no item has this number.
constexpr uint32_t kAllSamples = UINT32_MAX - 1;
constexpr size_t kOrdersMax = 2;
constexpr uint32_t kBlockSamples = 1 << 16;
constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint32_t);

}  // namespace

Status GlobalShuffle::set_counts(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> begins(1, 0);
  for (const uint64_t count : counts) begins.push_back(begins.back() + count);
  if (begins.back() >= kNowhere) {
    return resource_exhausted("{} samples, one order has at most {}", begins.back(), kNowhere - 1);
  }
  begins_ = std::move(begins);
  return absl::OkStatus();
}

uint32_t GlobalShuffle::slices() const {
  return static_cast<uint32_t>((samples() + slice_samples_ - 1) / slice_samples_);
}

uint64_t GlobalShuffle::slice_samples(uint32_t slice) const {
  const uint64_t begin = slice * slice_samples_;
  return begin >= samples() ? 0 : std::min(slice_samples_, samples() - begin);
}

void GlobalShuffle::hold(uint32_t file, SampleBlocks blocks) { held_[file] = std::move(blocks); }

const std::vector<uint32_t>& GlobalShuffle::order_of(uint32_t epoch) {
  const auto known = orders_.find(epoch);
  if (known != orders_.end()) return known->second;
  if (orders_.size() == kOrdersMax) orders_.erase(orders_.begin());
  return orders_[epoch] = permutation({.seed = seed_, .epoch = epoch, .item = kAllSamples},
                                      static_cast<uint32_t>(samples()));
}

std::optional<SampleRef> GlobalShuffle::find(uint32_t number) const {
  const auto above = std::upper_bound(begins_.begin(), begins_.end(), number);
  const auto file = static_cast<uint32_t>(above - begins_.begin() - 1);
  const auto held = held_.find(file);
  if (held == held_.end()) return std::nullopt;
  uint64_t at = number - begins_[file];
  for (const auto& block : held->second) {
    if (at < block->samples()) return SampleRef{block.get(), static_cast<uint32_t>(at)};
    at -= block->samples();
  }
  return std::nullopt;
}

GlobalShuffle::Records GlobalShuffle::records(uint32_t epoch, uint32_t slice, uint64_t& at,
                                              size_t bytes_max) {
  Records out;
  const std::vector<uint32_t>& order = order_of(epoch);
  const uint64_t size = slice_samples(slice);
  for (; at < size && out.bytes.size() < bytes_max; ++at) {
    const std::optional<SampleRef> sample = find(order[slice * slice_samples_ + at]);
    if (!sample.has_value()) continue;
    const size_t head = out.bytes.size();
    out.bytes.resize(head + kHeadBytes);
    encode_sample(*sample->block, sample->sample, out.bytes);
    const auto length = static_cast<uint32_t>(out.bytes.size() - head - kHeadBytes);
    std::memcpy(out.bytes.data() + head, &at, sizeof(at));
    std::memcpy(out.bytes.data() + head + sizeof(at), &length, sizeof(length));
    ++out.samples;
  }
  out.is_last = at >= size;
  return out;
}

void GlobalShuffle::begin(uint32_t epoch, uint32_t slice,
                          std::shared_ptr<const SampleSchema> schema) {
  const uint64_t size = slice_samples(slice);
  gathering_ = Gathering{.epoch = epoch,
                         .slice = slice,
                         .samples = std::make_unique<SampleBlock>(std::move(schema)),
                         .where = std::vector<uint32_t>(size, kNowhere),
                         .missing = size};
}

bool GlobalShuffle::is_gathering(uint32_t epoch, uint32_t slice) const {
  return gathering_.has_value() && gathering_->epoch == epoch && gathering_->slice == slice;
}

uint64_t GlobalShuffle::take_own() {
  Gathering& now = *gathering_;
  const uint64_t before = now.missing;
  const std::vector<uint32_t>& order = order_of(now.epoch);
  for (uint64_t at = 0; at < now.where.size(); ++at) {
    if (now.where[at] != kNowhere) continue;
    const std::optional<SampleRef> sample = find(order[now.slice * slice_samples_ + at]);
    if (!sample.has_value()) continue;
    now.where[at] = now.samples->samples();
    now.samples->append(*sample->block, sample->sample);
    --now.missing;
  }
  return before - now.missing;
}

StatusOr<uint64_t> GlobalShuffle::take(std::string_view records) {
  Gathering& now = *gathering_;
  const uint64_t before = now.missing;
  while (!records.empty()) {
    uint64_t at = 0;
    uint32_t length = 0;
    if (records.size() < kHeadBytes) return invalid_argument("a record of a slice is cut off");
    std::memcpy(&at, records.data(), sizeof(at));
    std::memcpy(&length, records.data() + sizeof(at), sizeof(length));
    records.remove_prefix(kHeadBytes);
    if (length > records.size() || at >= now.where.size()) {
      return invalid_argument("a record of {} bytes for place {} of a slice of {}", length, at,
                              now.where.size());
    }
    if (now.where[at] == kNowhere) {
      const uint32_t index = now.samples->samples();
      STARLING_RETURN_IF_ERROR(decode_sample(records.substr(0, length), *now.samples));
      now.where[at] = index;
      --now.missing;
    }
    records.remove_prefix(length);
  }
  return before - now.missing;
}

SampleBlocks GlobalShuffle::finish() {
  STARLING_CHECK(is_whole(), "a slice is dealt when all of its samples are there");
  const Gathering now = *std::exchange(gathering_, std::nullopt);
  SampleBlocks out;
  std::shared_ptr<SampleBlock> block;
  for (const uint32_t at : now.where) {
    if (block == nullptr || block->samples() == kBlockSamples) {
      block = std::make_shared<SampleBlock>(now.samples->shared_schema());
      out.push_back(block);
    }
    block->append(*now.samples, at);
  }
  return out;
}

size_t GlobalShuffle::bytes() const {
  if (!gathering_.has_value()) return 0;
  return gathering_->samples->bytes() + gathering_->where.size() * sizeof(uint32_t);
}

}  // namespace starling
