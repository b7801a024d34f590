#include "hub/reader.h"

#include <utility>

namespace starling {
namespace {

constexpr uint32_t kNoFile = UINT32_MAX;
// Parsing a chunk takes milliseconds; whoever waits longer waits for a machine that stands still.
constexpr Duration kWait = seconds(1);

}  // namespace

ParsePool::ParsePool(std::shared_ptr<const Format> format, const ParsePoolOptions& options,
                     const Clock& clock)
    : format_(std::move(format)), options_(options), clock_(clock), jobs_(options.queue) {
  for (uint32_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back(ThreadOptions{.name = fmt::format("parse-{}", i)}, [this] { run(); });
  }
}

ParsePool::~ParsePool() {
  jobs_.close();
  for (Thread& thread : threads_) thread.join();
}

uint32_t ParsePool::add_file() { return files_.fetch_add(1); }

Status ParsePool::submit(std::shared_ptr<ParseJob> job) {
  return jobs_.push(std::move(job), Deadline::never());
}

void ParsePool::run() {
  std::unique_ptr<Parser> parser;
  uint32_t file = kNoFile;
  while (true) {
    StatusOr<std::shared_ptr<ParseJob>> job = jobs_.pop(Deadline::never());
    if (!job.ok()) return;
    const TimePoint start = clock_.now();
    parse(**job, parser, file);
    if (options_.parse_ns != nullptr) options_.parse_ns->record(clock_.now() - start);
    MutexLock lock((*job)->mutex);
    (*job)->is_done = true;
    (*job)->changed.notify_all();
  }
}

void ParsePool::parse(ParseJob& job, std::unique_ptr<Parser>& parser, uint32_t& file) const {
  job.samples = make_block();
  if (file != job.file) {
    StatusOr<std::unique_ptr<Parser>> made = format_->parser(*job.head);
    if (!made.ok()) {
      job.result = made.status();
      return;
    }
    parser = *std::move(made);
    file = job.file;
  }
  job.result = parser->parse(job.chunk.chunk, *job.samples, options_.bad_kept);
  // The text of bad records lies in the chunk; all else may go.
  if (job.result.ok() && job.result->bad.empty()) job.chunk = {};
}

Status BadLog::write(const ParseResult& result) {
  if (path_.empty() || result.bad.empty()) return absl::OkStatus();
  if (out_ == nullptr) {
    STARLING_ASSIGN_OR_RETURN(out_, files_.open_append(path_));
  }
  std::string text;
  for (const BadLine& line : result.bad) {
    text += line.text;
    if (!line.text.ends_with('\n')) text += '\n';
  }
  return with_context(out_->append(bytes_of(text)), fmt::format("bad_lines_path {}", path_));
}

SampleReader::SampleReader(ItemSource& source, ParsePool& pool, BadLines& bad, BadLog& log,
                           const Limits& limits)
    : source_(source),
      pool_(pool),
      bad_(bad),
      log_(log),
      limits_(limits),
      file_(pool.add_file()),
      head_(std::make_shared<const std::string>(source.head())) {}

SampleReader::~SampleReader() {
  for (const std::shared_ptr<ParseJob>& job : open_) {
    MutexLock lock(job->mutex);
    while (!job->is_done) job->changed.wait(job->mutex, Deadline::in(pool_.clock(), kWait));
  }
}

size_t SampleReader::bytes() const {
  size_t bytes = 0;
  for (const std::shared_ptr<ParseJob>& job : open_) {
    MutexLock lock(job->mutex);
    bytes += job->bytes;
    if (job->is_done) bytes += job->samples->bytes();
  }
  return bytes;
}

Status SampleReader::submit_more() {
  while (!is_read_ && open_.size() < limits_.chunks_max) {
    if (!open_.empty() && bytes() > limits_.bytes_max) break;
    STARLING_ASSIGN_OR_RETURN(OwnedChunk chunk, source_.next());
    if (chunk.is_end()) {
      is_read_ = true;
      break;
    }
    auto job = std::make_shared<ParseJob>();
    if (chunk.too_long.has_value()) {
      // Its place in the order of the stream is all that it has of a chunk.
      job->samples = pool_.make_block();
      job->result =
          ParseResult{.counts = {.records = 1, .bad = 1}, .bad = {*std::move(chunk.too_long)}};
      MutexLock lock(job->mutex);
      job->is_done = true;
      open_.push_back(job);
      continue;
    }
    job->bytes = chunk.buffer.size();
    job->chunk = std::move(chunk);
    job->file = file_;
    job->head = head_;
    STARLING_RETURN_IF_ERROR(pool_.submit(job));
    open_.push_back(std::move(job));
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const SampleBlock>> SampleReader::next() {
  STARLING_RETURN_IF_ERROR(submit_more());
  if (open_.empty()) return std::shared_ptr<const SampleBlock>();
  const std::shared_ptr<ParseJob> job = std::move(open_.front());
  open_.pop_front();
  {
    MutexLock lock(job->mutex);
    while (!job->is_done) job->changed.wait(job->mutex, Deadline::in(pool_.clock(), kWait));
  }
  if (!job->result.ok()) return with_context(job->result.status(), source_.path());
  STARLING_RETURN_IF_ERROR(bad_.take(source_.path(), *job->result));
  STARLING_RETURN_IF_ERROR(log_.write(*job->result));
  counts_ += job->result->counts;
  return std::shared_ptr<const SampleBlock>(job->samples);
}

}  // namespace starling
