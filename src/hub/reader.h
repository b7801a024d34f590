// SampleReader turns the chunks of a work item into samples: parsed by several threads, handed out
// in the order of the file, so that the stream is the same for any number of threads.
//
// Uses: base, data. Threads: a ParsePool has `threads` threads named parse-N; a SampleReader
// belongs to one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "base/queue.h"
#include "base/thread.h"
#include "data/bad_lines.h"
#include "data/format.h"
#include "hub/source.h"

namespace starling {

// A chunk on its way through a ParsePool.
struct ParseJob {
  OwnedChunk chunk;
  size_t bytes = 0;   // of the chunk
  uint32_t file = 0;  // of ParsePool::add_file()
  std::shared_ptr<const std::string> head;

  Mutex mutex;
  CondVar changed;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  // Set before is_done.
  std::shared_ptr<SampleBlock> samples;
  StatusOr<ParseResult> result = ParseResult();
};

struct ParsePoolOptions {
  uint32_t threads = 1;
  uint32_t queue = 64;            // jobs that wait
  size_t bad_kept = 16;           // bad records of a chunk that are told
  Histogram* parse_ns = nullptr;  // of a chunk
};

class ParsePool {
 public:
  // `clock` outlives it.
  ParsePool(std::shared_ptr<const Format> format, const ParsePoolOptions& options,
            const Clock& clock);
  ~ParsePool();

  // A file of its own: parsers are per file.
  uint32_t add_file();
  Status submit(std::shared_ptr<ParseJob> job);
  std::shared_ptr<SampleBlock> make_block() const {
    return std::make_shared<SampleBlock>(format_->schema());
  }
  uint32_t threads() const { return options_.threads; }
  const Clock& clock() const { return clock_; }

 private:
  void run();
  void parse(ParseJob& job, std::unique_ptr<Parser>& parser, uint32_t& file) const;

  const std::shared_ptr<const Format> format_;
  const ParsePoolOptions options_;
  const Clock& clock_;
  std::atomic<uint32_t> files_{0};
  Queue<std::shared_ptr<ParseJob>> jobs_;
  std::vector<Thread> threads_;
};

// Writes skipped records to a file. `files` outlives it.
class BadLog {
 public:
  BadLog(std::string path, FileSystem& files) : path_(std::move(path)), files_(files) {}
  // Nothing when there is no path.
  Status write(const ParseResult& result);

 private:
  const std::string path_;
  FileSystem& files_;
  std::unique_ptr<AppendFile> out_;
};

class SampleReader {
 public:
  struct Limits {
    uint32_t chunks_max = 4;      // read and not handed out
    size_t bytes_max = SIZE_MAX;  // of these; one chunk is always read
  };
  // All outlive it.
  SampleReader(ItemSource& source, ParsePool& pool, BadLines& bad, BadLog& log,
               const Limits& limits);
  // Waits for what is being parsed.
  ~SampleReader();

  // The next samples; null at the end. Codes as ItemSource::next and BadLines::take.
  StatusOr<std::shared_ptr<const SampleBlock>> next();
  // Of what has been handed out.
  const ParseCounts& counts() const { return counts_; }
  // Of what is read and not handed out.
  size_t bytes() const;

 private:
  Status submit_more();

  ItemSource& source_;
  ParsePool& pool_;
  BadLines& bad_;
  BadLog& log_;
  const Limits limits_;
  const uint32_t file_;
  const std::shared_ptr<const std::string> head_;
  std::deque<std::shared_ptr<ParseJob>> open_;
  ParseCounts counts_;
  bool is_read_ = false;
};

}  // namespace starling
