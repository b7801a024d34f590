// BatchCutter cuts the samples of a work item into batches: in the order of the file, or shuffled
// in blocks. What batch n holds depends on the seed, the epoch and the item alone.
//
// Uses: base, data. Threads: one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/sample.h"

namespace starling {

struct CutterOptions {
  uint32_t batch_size = 512;
  uint64_t shuffle_samples = 0;  // of a block, rounded up to whole batches; 0: the file's order
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint32_t item = 0;
};

class BatchCutter {
 public:
  explicit BatchCutter(const CutterOptions& options);

  // The next samples of the item.
  void add(std::shared_ptr<const SampleBlock> samples);
  // No more come.
  void end() { is_ended_ = true; }
  // The samples of the next batch; valid until the next call. None: add() more, or it is over.
  std::optional<std::span<const SampleRef>> next();

  // Where the next batch stands: (block, batch in it).
  uint64_t block() const { return block_; }
  uint64_t batches() const { return batches_; }  // cut so far
  size_t bytes() const;                          // of the samples it holds

 private:
  struct Pending {
    std::shared_ptr<const SampleBlock> samples;
    uint32_t used = 0;
  };
  bool next_block();

  const CutterOptions options_;
  const uint64_t block_samples_;
  std::deque<Pending> pending_;
  uint64_t waiting_ = 0;  // samples in pending_ that are in no block yet
  std::vector<std::shared_ptr<const SampleBlock>> held_;  // by the block
  std::vector<SampleRef> refs_;                           // of the block, in its order
  size_t at_ = 0;                                         // in refs_
  uint64_t block_ = 0;                                    // blocks begun
  uint64_t batches_ = 0;
  bool is_ended_ = false;
};

}  // namespace starling
