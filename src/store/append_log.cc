#include "store/append_log.h"

#include <array>
#include <cstring>

#include "base/bytes.h"
#include "store/hash.h"

namespace starling {
namespace {

constexpr std::array<char, 8> kMagic = {'S', 'T', 'L', 'L', 'O', 'G', '0', '1'};
constexpr uint32_t kRecordMagic = 0x52474f4c;  // "LOGR"
constexpr size_t kRecordHeadBytes = 24;        // magic, bytes, durable, hash

template <typename T>
T get(const char* at) {
  return number_at<T>(reinterpret_cast<const std::byte*>(at));
}

// The seed is the record's offset: bytes of an older log that a file system shows again do not
// verify elsewhere.
uint64_t record_hash(uint64_t offset, uint32_t bytes, uint64_t durable, const void* payload) {
  const uint64_t seed = offset ^ (durable * 0x9e3779b97f4a7c15 + bytes);
  return xxh3({static_cast<const std::byte*>(payload), bytes}, seed);
}

struct Record {
  std::string_view payload;
  uint64_t durable = 0;
};

// The record at `offset`, or nothing when the bytes there are none.
bool parse_record(std::string_view file, uint64_t offset, uint32_t bytes_max, Record& record) {
  const std::string_view rest = file.substr(static_cast<size_t>(offset));
  if (rest.size() < kRecordHeadBytes || get<uint32_t>(rest.data()) != kRecordMagic) return false;
  const auto bytes = get<uint32_t>(rest.data() + 4);
  if (bytes == 0 || bytes > bytes_max || bytes > rest.size() - kRecordHeadBytes) return false;
  record.durable = get<uint64_t>(rest.data() + 8);
  record.payload = rest.substr(kRecordHeadBytes, bytes);
  // A record cannot know of bytes that come after it.
  if (record.durable > offset) return false;
  return get<uint64_t>(rest.data() + 16) ==
         record_hash(offset, bytes, record.durable, record.payload.data());
}

// How far the file was durable once, as the whole records after `offset` tell: pages of an unsynced
// tail reach the disk in any order, so whole records may follow a torn one.
uint64_t durable_after(std::string_view file, uint64_t offset, uint32_t bytes_max) {
  uint64_t durable = 0;
  std::array<char, sizeof(kRecordMagic)> magic{};
  std::memcpy(magic.data(), &kRecordMagic, sizeof(kRecordMagic));
  const std::string_view needle(magic.data(), magic.size());
  size_t at = file.find(needle, static_cast<size_t>(offset));
  while (at != std::string_view::npos) {
    Record record;
    size_t next = at + 1;
    if (parse_record(file, at, bytes_max, record)) {
      durable = std::max(durable, record.durable);
      next = at + kRecordHeadBytes + record.payload.size();
    }
    at = file.find(needle, next);
  }
  return durable;
}

}  // namespace

AppendLog::AppendLog(std::unique_ptr<AppendFile> file, AppendLogOptions options)
    : file_(std::move(file)), options_(options) {}

StatusOr<std::unique_ptr<AppendLog>> AppendLog::open(FileSystem& fs, std::string_view url,
                                                     const Visit& visit, AppendLogOptions options) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<AppendFile> file, fs.open_append(url));
  std::unique_ptr<AppendLog> log(new AppendLog(std::move(file), options));
  STARLING_RETURN_IF_ERROR(log->recover(fs, visit));
  return log;
}

Status AppendLog::write_head() {
  if (file_->size() > 0) STARLING_RETURN_IF_ERROR(file_->truncate(0));
  STARLING_RETURN_IF_ERROR(file_->append(std::as_bytes(std::span(kMagic))));
  STARLING_RETURN_IF_ERROR(file_->sync());
  durable_ = file_->size();
  return absl::OkStatus();
}

Status AppendLog::recover(FileSystem& fs, const Visit& visit) {
  STARLING_ASSIGN_OR_RETURN(const std::string file, read_file(fs, url(), kToEnd));
  const std::string_view magic(kMagic.data(), kMagic.size());
  if (file.size() < magic.size()) {
    // The head is synced before the first record, so a shorter file never held one. Zeros are a
    // torn head.
    const bool is_torn =
        magic.starts_with(file) || file.find_first_not_of('\0') == std::string::npos;
    if (!is_torn) return failed_precondition("{}: open: not a log", url());
    cut_bytes_ = file.size();
    return write_head();
  }
  if (!std::string_view(file).starts_with(magic)) {
    if (file.find_first_not_of('\0') != std::string::npos)
      return failed_precondition("{}: open: not a log", url());
    cut_bytes_ = file.size();
    return write_head();
  }
  uint64_t at = magic.size();
  uint64_t durable = at;
  Record record;
  while (parse_record(file, at, options_.record_bytes_max, record)) {
    STARLING_RETURN_IF_ERROR(visit(bytes_of(record.payload)));
    durable = std::max(durable, record.durable);
    at += kRecordHeadBytes + record.payload.size();
  }
  if (at < file.size()) {
    durable = std::max(durable, durable_after(file, at, options_.record_bytes_max));
    if (at < durable) {
      return data_loss("{}: record at {}: damaged, though all up to {} had been synced", url(), at,
                       durable);
    }
    cut_bytes_ = file.size() - at;
    STARLING_RETURN_IF_ERROR(file_->truncate(at));
  }
  // What was read may still sit in the page cache alone.
  return sync();
}

Status AppendLog::append(std::span<const std::byte> record) {
  STARLING_RETURN_IF_ERROR(failed_);
  if (record.empty() || record.size() > options_.record_bytes_max) {
    return invalid_argument("{}: append: a record has 1 to {} bytes, this one {}", url(),
                            options_.record_bytes_max, record.size());
  }
  const auto bytes = static_cast<uint32_t>(record.size());
  buffer_.resize(kRecordHeadBytes + bytes);
  put_number(buffer_.data(), kRecordMagic);
  put_number(buffer_.data() + 4, bytes);
  put_number(buffer_.data() + 8, durable_);
  put_number(buffer_.data() + 16, record_hash(file_->size(), bytes, durable_, record.data()));
  std::memcpy(buffer_.data() + kRecordHeadBytes, record.data(), bytes);
  failed_ = file_->append(buffer_);
  return failed_;
}

Status AppendLog::sync() {
  STARLING_RETURN_IF_ERROR(failed_);
  failed_ = file_->sync();
  if (failed_.ok()) durable_ = file_->size();
  return failed_;
}

}  // namespace starling
