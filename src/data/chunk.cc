#include "data/chunk.h"

#include <algorithm>
#include <cstring>

#include "data/options.h"
#include "data/prefix.h"

namespace starling {
namespace {

StatusOr<size_t> whole_lines(std::string_view bytes, bool at_end, uint64_t record_bytes_max) {
  if (at_end) return bytes.size();
  const size_t last = bytes.rfind('\n');
  if (last != std::string_view::npos) return last + 1;
  if (bytes.size() > record_bytes_max) {
    return resource_exhausted("a line has more than line_bytes_max ({}) bytes", record_bytes_max);
  }
  return size_t{0};
}

StatusOr<size_t> whole_prefixed(std::string_view bytes, bool at_end, uint64_t record_bytes_max) {
  size_t end = 0;
  while (end < bytes.size()) {
    STARLING_ASSIGN_OR_RETURN(const RecordSpan record, next_record(bytes.substr(end)));
    if (record.bytes > record_bytes_max) {
      return resource_exhausted("a record has {} bytes, line_bytes_max is {}", record.bytes,
                                record_bytes_max);
    }
    if (record.prefix_bytes == 0 || record.total() > bytes.size() - end) break;
    end += record.total();
  }
  if (at_end && end != bytes.size()) {
    return data_loss("the file ends inside of a record, {} bytes behind its start",
                     bytes.size() - end);
  }
  return end;
}

}  // namespace

StatusOr<size_t> whole_records(RecordKind kind, std::string_view bytes, bool at_end,
                               uint64_t record_bytes_max) {
  if (record_bytes_max == 0) record_bytes_max = kLineBytesMax;
  return kind == RecordKind::kLines ? whole_lines(bytes, at_end, record_bytes_max)
                                    : whole_prefixed(bytes, at_end, record_bytes_max);
}

uint64_t count_records(RecordKind kind, std::string_view bytes) {
  if (kind == RecordKind::kLines) {
    const auto lines = static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    return lines + (bytes.empty() || bytes.back() == '\n' ? 0 : 1);
  }
  uint64_t records = 0;
  while (!bytes.empty()) {
    const StatusOr<RecordSpan> record = next_record(bytes);
    if (!record.ok() || record->prefix_bytes == 0 || record->total() > bytes.size()) break;
    bytes.remove_prefix(record->total());
    ++records;
  }
  return records;
}

size_t first_line_of_part(std::string_view bytes) {
  const size_t newline = bytes.find('\n');
  return newline == std::string_view::npos ? newline : newline + 1;
}

}  // namespace starling
