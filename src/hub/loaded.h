// LoadedSet keeps samples of files that are in memory already: what one dataset loads ahead of need
// is taken by the next.
//
// Uses: base, data. Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "data/format.h"
#include "hub/global_shuffle.h"

namespace starling {

// All samples of a work item.
struct LoadedItem {
  SampleBlocks blocks;
  ParseCounts counts;
  uint64_t merged = 0;  // samples that became part of another
  uint64_t bytes_read = 0;
};

class LoadedSet {
 public:
  // `content`: of the item and of all that decides how it is read (content_of).
  void put(uint64_t content, LoadedItem item) {
    MutexLock lock(mutex_);
    items_[content] = std::make_shared<const LoadedItem>(std::move(item));
  }
  // Null: it is not there. It is not there afterwards.
  std::shared_ptr<const LoadedItem> take(uint64_t content) {
    MutexLock lock(mutex_);
    const auto it = items_.find(content);
    if (it == items_.end()) return nullptr;
    std::shared_ptr<const LoadedItem> item = std::move(it->second);
    items_.erase(it);
    return item;
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<const LoadedItem>> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
