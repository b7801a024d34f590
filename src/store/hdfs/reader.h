// HdfsReader reads a range of an HDFS file by its inode, a large one as several ranges at once, and
// goes on where it was when a data node fails.
//
// The inode, not the path, names what is read: ranges never mix two versions of a file, and a
// repeat is safe. Uses: base, libcurl. Threads: one owner at a time; interrupt() from any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "store/hdfs/name_nodes.h"
#include "store/pages.h"

namespace starling {

class HdfsReader final : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> open(std::shared_ptr<NameNodes> nodes,
                                                std::string_view path, std::string_view url,
                                                ReadRange range);

  StatusOr<size_t> read(std::span<std::byte> into) override;
  void interrupt() override;
  const std::string& url() const override { return url_; }

 private:
  // A range under way. Slots are delivered in order; all move at once.
  struct Slot {
    uint64_t start = 0;
    uint64_t bytes = 0;
    uint64_t taken = 0;
    PageBuffer memory;
    std::unique_ptr<HttpDownload> download;
  };

  HdfsReader(std::shared_ptr<NameNodes> nodes, std::string path, std::string url, ReadRange range);

  void fill_window();
  void start(Slot& slot);
  // Counts bytes that went out; a slot that has given all of its own makes room.
  size_t take_from_first(size_t got);
  // Waits until the first slot has bytes or has ended. False when nothing moved for the stall time.
  bool wait_for_first();
  // Starts the first slot again after what went wrong with it, or says why not.
  Status restart_first(bool has_stalled);
  StatusOr<size_t> read_some(std::span<std::byte> into);

  const std::shared_ptr<NameNodes> nodes_;
  const std::string path_;  // of the inode
  const std::string url_;
  const uint64_t slot_bytes_;
  const size_t slots_max_;
  const size_t memory_bytes_;  // of one slot
  uint64_t next_;              // where the next slot starts
  const uint64_t end_;
  HttpMulti multi_;
  std::vector<PageBuffer> free_memory_;
  std::deque<Slot> slots_;  // after multi_ and memory: downloads use both until they are gone
  uint64_t moved_since_perform_ = 0;
  std::string excluded_;  // data nodes to stay away from
  Deadline give_up_;      // without a byte until then
  std::unique_ptr<Backoff> backoff_;
  Status failed_;
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace starling
