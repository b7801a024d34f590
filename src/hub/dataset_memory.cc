// Memory datasets: an item is loaded once and stays; each epoch deals it in an order of its own.
#include "data/shuffle.h"
#include "hub/dataset.h"

namespace starling {
namespace {

constexpr uint32_t kBlockSamples = 1 << 16;

using Blocks = std::vector<std::shared_ptr<const SampleBlock>>;

std::vector<SampleRef> refs_of(const Blocks& blocks) {
  std::vector<SampleRef> refs;
  for (const auto& block : blocks) {
    for (uint32_t i = 0; i < block->samples(); ++i) refs.push_back({block.get(), i});
  }
  return refs;
}

Blocks shared(std::vector<SampleBlock> blocks) {
  Blocks out;
  for (SampleBlock& block : blocks) {
    block.compact();
    out.push_back(std::make_shared<const SampleBlock>(std::move(block)));
  }
  return out;
}

}  // namespace

StatusOr<std::vector<std::shared_ptr<const SampleBlock>>> Dataset::merged(
    const std::vector<std::shared_ptr<const SampleBlock>>& blocks) const {
  STARLING_ASSIGN_OR_RETURN(std::vector<SampleBlock> made,
                            merge_by_id(refs_of(blocks), kBlockSamples));
  return shared(std::move(made));
}

StatusOr<const Dataset::LoadedItem*> Dataset::load(const v1::WorkItem& work) {
  const std::string key = fmt::format("{} {} {}", work.path(), work.begin(), work.end());
  if (const auto it = loaded_.find(key); it != loaded_.end()) return &it->second;
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<ItemSource> source,
                            ItemSource::open(*world_.files, work, source_, *world_.clock));
  SampleReader reader(*source, *pool_, *bad_lines_, *bad_log_, chunks_max_);
  LoadedItem item;
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const std::shared_ptr<const SampleBlock> samples, reader.next());
    if (samples == nullptr) break;
    auto kept = std::make_shared<SampleBlock>(*samples);
    kept->compact();
    loaded_bytes_ += kept->bytes();
    item.blocks.push_back(std::move(kept));
    if (options_.memory_bytes_max > 0 && loaded_bytes_ > options_.memory_bytes_max / 2) {
      return resource_exhausted("{}: {} bytes of samples are loaded, half of hub.memory_max ({})",
                                work.path(), loaded_bytes_, options_.memory_bytes_max);
    }
  }
  item.counts = reader.counts();
  item.bytes_read = source->bytes_read();
  if (options_.start.merge_by_id()) {
    STARLING_ASSIGN_OR_RETURN(item.blocks, merged(item.blocks));
    uint64_t left = 0;
    for (const auto& block : item.blocks) left += block->samples();
    item.merged = item.counts.samples - left;
  }
  return &(loaded_[key] = std::move(item));
}

StatusOr<bool> Dataset::deal_loaded(const ItemName& name, const v1::WorkLease& lease,
                                    BatchCutter& cutter, ItemCounts& counts) {
  STARLING_ASSIGN_OR_RETURN(const LoadedItem* item, load(lease.work()));
  std::vector<std::shared_ptr<const SampleBlock>> blocks = item->blocks;
  const auto& slots = options_.start.memory().slots_shuffle();
  if (!slots.empty()) {
    STARLING_ASSIGN_OR_RETURN(
        std::vector<SampleBlock> made,
        slots_shuffle(refs_of(blocks), {slots.begin(), slots.end()},
                      {.seed = options_.start.seed(), .epoch = name.epoch, .item = name.item},
                      kBlockSamples));
    blocks = shared(std::move(made));
  }
  for (auto& block : blocks) cutter.add(std::move(block));
  cutter.end();
  STARLING_ASSIGN_OR_RETURN(const bool goes_on, deal(name, lease.done_below(), cutter, counts));
  if (!goes_on) return false;
  counts.samples_read = item->counts.records;
  counts.samples_skipped = item->counts.records - item->counts.samples + item->merged;
  counts.bytes_read = item->bytes_read;
  return true;
}

}  // namespace starling
