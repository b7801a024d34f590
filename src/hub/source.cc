#include "hub/source.h"

#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstring>

#include "store/pipe.h"
#include "store/read_ahead.h"
#include "store/streams.h"

namespace starling {
namespace {

// A range that is only a little longer than an item stays whole.
constexpr double kItemSlack = 1.25;

bool may_split(const std::string& path, const SourceOptions& options) {
  return options.records == RecordKind::kLines && !options.has_header &&
         options.pipe_command.empty() && compression_of(path) == Compression::kNone;
}

void add_items(const FileInfo& file, const SourceOptions& options,
               std::vector<v1::WorkItem>& items) {
  if (file.bytes == 0 && compression_of(file.url) == Compression::kNone) return;
  const auto add = [&](uint64_t begin, uint64_t end) {
    v1::WorkItem& item = items.emplace_back();
    item.set_item(static_cast<uint32_t>(items.size() - 1));
    item.set_path(file.url);
    item.set_begin(begin);
    item.set_end(end);
    item.set_hint_bytes(end == 0 ? file.bytes : end - begin);
  };
  const auto whole = static_cast<double>(file.bytes);
  if (!may_split(file.url, options)) return add(0, 0);
  if (whole <= kItemSlack * static_cast<double>(options.item_bytes)) return add(0, file.bytes);
  const uint64_t parts = (file.bytes + options.item_bytes - 1) / options.item_bytes;
  for (uint64_t i = 0; i < parts; ++i) {
    add(file.bytes / parts * i, i + 1 == parts ? file.bytes : file.bytes / parts * (i + 1));
  }
}

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  for (const auto word : absl::StrSplit(command, ' ', absl::SkipEmpty())) {
    words.emplace_back(word.data(), word.size());
  }
  return words;
}

}  // namespace

StatusOr<std::vector<v1::WorkItem>> list_items(FileSystem& files,
                                               const std::vector<std::string>& patterns,
                                               const SourceOptions& options) {
  std::vector<v1::WorkItem> items;
  for (const std::string& pattern : patterns) {
    STARLING_ASSIGN_OR_RETURN(const std::vector<FileInfo> found, files.list(pattern));
    size_t count = 0;
    for (const FileInfo& file : found) {
      if (file.is_directory) continue;
      ++count;
      add_items(file, options, items);
    }
    if (count == 0) return not_found("{}: no file matches", pattern);
  }
  return items;
}

StatusOr<std::unique_ptr<ItemSource>> ItemSource::open(FileSystem& files, const v1::WorkItem& item,
                                                       const SourceOptions& options,
                                                       const Clock& clock) {
  std::unique_ptr<ItemSource> source(new ItemSource(item, options));
  source->offset_ = item.begin();
  std::unique_ptr<Reader> reader;
  if (item.begin() > 0) {
    // The byte before tells whether a line starts right here.
    STARLING_ASSIGN_OR_RETURN(reader, files.open_read(item.path(), {.offset = item.begin() - 1}));
    source->offset_ = item.begin() - 1;
  } else {
    STARLING_ASSIGN_OR_RETURN(reader, open_decompressed(files, item.path()));
    source->line_ = 1;
  }
  if (!options.pipe_command.empty()) {
    STARLING_ASSIGN_OR_RETURN(
        reader, pipe_command(std::move(reader), words_of(options.pipe_command), clock));
  }
  STARLING_ASSIGN_OR_RETURN(
      source->reader_,
      ReadAhead::start(std::move(reader), {.chunk_bytes = options.chunk_bytes, .chunks = 4}));
  STARLING_RETURN_IF_ERROR(source->fill());
  if (item.begin() > 0) STARLING_RETURN_IF_ERROR(source->find_first_line());
  if (options.has_header) {
    while (source->pending().find('\n') == std::string_view::npos && !source->is_at_end_) {
      if (source->pending().size() > options.record_bytes_max) break;
      STARLING_RETURN_IF_ERROR(source->fill());
    }
    source->head_ = source->pending().substr(0, source->pending().find('\n') + 1);
  }
  return source;
}

// One chunk more, or as much again as is here: a long line is then moved a few times only. What is
// handed out shares the old buffer, so the rest moves to a new one.
Status ItemSource::fill() {
  const std::string_view rest = pending();
  const size_t more = std::max(options_.chunk_bytes, rest.size());
  const size_t bytes = rest.size() + more;
  Buffer next = options_.pool != nullptr ? options_.pool->allocate(bytes) : Buffer::allocate(bytes);
  if (!rest.empty()) std::memcpy(next.mutable_data(), rest.data(), rest.size());
  const StatusOr<size_t> got = read_full(*reader_, next.mutable_bytes().subspan(rest.size()));
  if (!got.ok()) return got.status();
  begin_ = 0;
  end_ = rest.size() + *got;
  buffer_ = std::move(next);
  bytes_read_ += *got;
  is_at_end_ = *got < more;
  return absl::OkStatus();
}

void ItemSource::drop(size_t length) {
  begin_ += length;
  offset_ += length;
}

Status ItemSource::find_first_line() {
  while (true) {
    const size_t at = first_line_of_part(pending());
    if (at != std::string_view::npos) {
      drop(at);
      return absl::OkStatus();
    }
    const bool is_behind = offset_ + pending().size() >= item_.end();
    if (is_at_end_ || is_behind) {
      is_over_ = true;
      return absl::OkStatus();
    }
    // All of it belongs to a line that began earlier; its last byte may end it.
    drop(pending().size() - 1);
    STARLING_RETURN_IF_ERROR(fill());
  }
}

StatusOr<OwnedChunk> ItemSource::next() {
  while (!is_over_) {
    const auto whole =
        whole_records(options_.records, pending(), is_at_end_, options_.record_bytes_max);
    const bool is_long = whole.status().code() == StatusCode::kResourceExhausted;
    if (is_long && options_.skips_long && options_.records == RecordKind::kLines) {
      return step_over(std::string(message_of(whole.status())));
    }
    if (!whole.ok()) return with_context(whole.status(), item_.path());
    size_t length = *whole;
    if (item_.end() > 0 && offset_ >= item_.end()) break;
    if (item_.end() > 0 && offset_ + length >= item_.end()) {
      // The record that holds the last byte of the range is the last.
      const size_t last = pending().find('\n', item_.end() - 1 - offset_);
      if (last != std::string_view::npos && last < length) {
        length = last + 1;
        is_over_ = true;
      }
    }
    if (length > 0) return cut(length);
    if (is_at_end_) break;
    STARLING_RETURN_IF_ERROR(fill());
  }
  is_over_ = true;
  if (is_at_end_ && offset_ + pending().size() < item_.end()) {
    return data_loss("{}: the file has {} bytes, it had {} or more before", item_.path(),
                     offset_ + pending().size(), item_.end());
  }
  return OwnedChunk{};
}

// No more than a chunk of the line is ever here.
StatusOr<OwnedChunk> ItemSource::step_over(std::string why) {
  OwnedChunk out;
  out.too_long = BadLine{.line = line_, .offset = offset_, .reason = std::move(why)};
  while (true) {
    const size_t newline = pending().find('\n');
    if (newline != std::string_view::npos) {
      drop(newline + 1);
      if (line_ > 0) ++line_;
      return out;
    }
    drop(pending().size());
    if (is_at_end_) return out;
    STARLING_RETURN_IF_ERROR(fill());
  }
}

OwnedChunk ItemSource::cut(size_t length) {
  OwnedChunk out;
  out.buffer = buffer_.slice(begin_, length);
  out.chunk.bytes = out.buffer.view();
  out.chunk.offset = offset_;
  out.chunk.line = line_;
  if (line_ > 0) line_ += count_records(options_.records, out.chunk.bytes);
  drop(length);
  return out;
}

}  // namespace starling
