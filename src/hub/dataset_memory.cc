// Memory datasets: an item is loaded once and stays; each epoch deals it in an order of its own.
#include "data/shuffle.h"
#include "hub/dataset.h"

namespace starling {
namespace {

constexpr uint32_t kBlockSamples = 1 << 16;

std::vector<SampleRef> refs_of(const SampleBlocks& blocks) {
  std::vector<SampleRef> refs;
  for (const auto& block : blocks) {
    for (uint32_t i = 0; i < block->samples(); ++i) refs.push_back({block.get(), i});
  }
  return refs;
}

SampleBlocks shared(std::vector<SampleBlock> blocks) {
  SampleBlocks out;
  for (SampleBlock& block : blocks) {
    block.compact();
    out.push_back(std::make_shared<const SampleBlock>(std::move(block)));
  }
  return out;
}

}  // namespace

StatusOr<SampleBlocks> Dataset::merged(const SampleBlocks& blocks) const {
  STARLING_ASSIGN_OR_RETURN(std::vector<SampleBlock> made,
                            merge_by_id(refs_of(blocks), kBlockSamples));
  return shared(std::move(made));
}

StatusOr<const LoadedItem*> Dataset::load(const v1::WorkItem& work) {
  const uint64_t content = content_of(options_.start, {work});
  std::shared_ptr<const LoadedItem>& kept = loaded_[content];
  if (kept == nullptr) kept = world_.loaded->take(content);
  if (kept == nullptr) {
    STARLING_ASSIGN_OR_RETURN(LoadedItem item, load_whole(work, *pool_, *bad_lines_, *bad_log_));
    kept = std::make_shared<const LoadedItem>(std::move(item));
  }
  return kept.get();
}

StatusOr<LoadedItem> Dataset::load_whole(const v1::WorkItem& work, ParsePool& pool, BadLines& bad,
                                         BadLog& log) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<ItemSource> source,
                            ItemSource::open(*world_.files, work, source_, *world_.clock));
  SampleReader reader(*source, pool, bad, log, limits_);
  LoadedItem item;
  while (true) {
    if (is_stopping_) return cancelled("the dataset stops");
    STARLING_ASSIGN_OR_RETURN(const std::shared_ptr<const SampleBlock> samples, reader.next());
    if (samples == nullptr) break;
    auto kept = std::make_shared<SampleBlock>(*samples);
    kept->compact();
    loaded_bytes_ += kept->bytes();
    note_memory(reader.bytes() + loaded_bytes_);
    item.blocks.push_back(std::move(kept));
    if (options_.memory_bytes_max > 0 && loaded_bytes_ > options_.memory_bytes_max / 2) {
      return resource_exhausted("{}: {} bytes of samples are loaded, half of hub.memory_max ({})",
                                work.path(), loaded_bytes_.load(), options_.memory_bytes_max);
    }
  }
  bytes_read_.add(source->bytes_read());
  samples_parsed_.add(reader.counts().samples);
  item.counts = reader.counts();
  item.bytes_read = source->bytes_read();
  if (options_.start.merge_by_id()) {
    STARLING_ASSIGN_OR_RETURN(item.blocks, merged(item.blocks));
    uint64_t left = 0;
    for (const auto& block : item.blocks) left += block->samples();
    item.merged = item.counts.samples - left;
  }
  return item;
}

void Dataset::preload() {
  const Status status = preload_files();
  if (status.ok() || is_stopping_) return;
  // Whoever needs the rest loads it then, and says what is wrong.
  world_.log.warning("preload_ended",
                     {{"dataset", options_.start.dataset()}, {"status", status.ToString()}});
}

Status Dataset::preload_files() {
  const v1::StartSampleOption& option = options_.start;
  const auto& patterns = option.memory().preload();
  STARLING_ASSIGN_OR_RETURN(const std::vector<v1::WorkItem> items,
                            list_items(*world_.files, {patterns.begin(), patterns.end()}, source_));
  BadLines bad(bad_lines_options());
  BadLog log("", *world_.files);
  ParsePool pool(format_, {.queue = limits_.chunks_max, .bad_kept = bad.kept_max()}, *world_.clock);
  for (const v1::WorkItem& work : items) {
    // Each hub its own, as it will take them.
    if (work.item() % options_.hubs != options_.hub) continue;
    STARLING_ASSIGN_OR_RETURN(LoadedItem item, load_whole(work, pool, bad, log));
    const uint64_t samples = item.counts.samples;
    world_.loaded->put(content_of(option, {work}), std::move(item));
    samples_preloaded_.add(samples);
  }
  return absl::OkStatus();
}

StatusOr<SampleBlocks> Dataset::with_slots_shuffled(const ItemName& name,
                                                    const SampleBlocks& blocks) const {
  const auto& slots = options_.start.memory().slots_shuffle();
  if (slots.empty()) return blocks;
  STARLING_ASSIGN_OR_RETURN(
      std::vector<SampleBlock> made,
      slots_shuffle(refs_of(blocks), {slots.begin(), slots.end()},
                    {.seed = options_.start.seed(), .epoch = name.epoch, .item = name.item},
                    kBlockSamples));
  return shared(std::move(made));
}

StatusOr<bool> Dataset::deal_loaded(const ItemName& name, const v1::WorkLease& lease,
                                    BatchCutter& cutter, ItemCounts& counts) {
  STARLING_ASSIGN_OR_RETURN(const LoadedItem* item, load(lease.work()));
  STARLING_ASSIGN_OR_RETURN(const SampleBlocks blocks, with_slots_shuffled(name, item->blocks));
  for (const auto& block : blocks) cutter.add(block);
  cutter.end();
  STARLING_ASSIGN_OR_RETURN(const bool goes_on, deal(name, lease.done_below(), cutter, counts));
  if (!goes_on) return false;
  counts.samples_read = item->counts.records;
  counts.samples_skipped = item->counts.records - item->counts.samples + item->merged;
  counts.bytes_read = item->bytes_read;
  return true;
}

}  // namespace starling
