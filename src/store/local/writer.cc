#include "store/local/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace starling {
namespace {

constexpr size_t kGatherBytes = 256 << 10;
// Write-back starts while the writer still writes, so that the final fsync finds little left to do.
constexpr uint64_t kFlushBytes = 8 << 20;
// Large writes go around the page cache when they come from memory that starts at a page, and to a
// place that does: its pages would be made, filled and given back for bytes that are not read soon.
// docs/design/ps-speed.md has the numbers.
constexpr size_t kDirectBytesMin = 1 << 20;
constexpr size_t kDirectUnit = 4096;

Status write_at(int fd, std::span<const std::byte> bytes, uint64_t offset, std::string_view url) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return system_error(errno, fmt::format("{} at {}", url, offset), "write");
    }
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Writer>> LocalWriter::open(const Url& url, Existing existing,
                                                    const std::string& temporary) {
  const std::string text = url.text();
  struct stat info {};
  if (::stat(url.path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return system_error(EISDIR, text, "open for writing");
    if (existing == Existing::kKeep) return system_error(EEXIST, text, "open for writing");
  }
  STARLING_RETURN_IF_ERROR(make_parent_durable(url.path, text));
  std::string temporary_path = join_url(parent_path(url.path), temporary);
  Descriptor file(::open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open()) return system_error(errno, text, "open for writing");
  return std::unique_ptr<Writer>(
      new LocalWriter(url, existing, std::move(temporary_path), std::move(file)));
}

LocalWriter::LocalWriter(const Url& url, Existing existing, std::string temporary_path,
                         Descriptor file)
    : url_(url.text()),
      path_(url.path),
      temporary_path_(std::move(temporary_path)),
      existing_(existing),
      file_(std::move(file)) {}

LocalWriter::~LocalWriter() {
  // A temporary that stays behind is found by its name later.
  if (temporary_exists_) ::unlink(temporary_path_.c_str());
}

Status LocalWriter::write(std::span<const std::byte> bytes) {
  STARLING_RETURN_IF_ERROR(failed_);
  if (!file_.is_open()) return failed_ = failed_precondition("{}: write: already published", url_);
  if (pending_.size() + bytes.size() < kGatherBytes) {
    pending_.reserve(kGatherBytes);
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  failed_ = write_through(pending_);
  pending_.clear();
  if (failed_.ok()) failed_ = write_through(bytes);
  return failed_;
}

StatusOr<std::span<const std::byte>> LocalWriter::write_direct(std::span<const std::byte> bytes) {
  const auto from = reinterpret_cast<uintptr_t>(bytes.data());
  const size_t count = bytes.size() / kDirectUnit * kDirectUnit;
  if (!may_direct_ || count < kDirectBytesMin || (from | written_) % kDirectUnit != 0) return bytes;
  if (!direct_.is_open()) {
    direct_ = Descriptor(::open(temporary_path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
    may_direct_ = direct_.is_open();
  }
  if (!may_direct_) return bytes;
  const auto at = static_cast<off_t>(written_);
  const ssize_t wrote = ::pwrite(direct_.get(), bytes.data(), count, at);
  if (wrote < 0) {
    if (errno == EINTR) return bytes;
    if (errno != EINVAL) return system_error(errno, fmt::format("{} at {}", url_, at), "write");
    may_direct_ = false;
    return bytes;
  }
  written_ += static_cast<uint64_t>(wrote);
  flushing_to_ = written_;
  return bytes.subspan(static_cast<size_t>(wrote));
}

Status LocalWriter::write_through(std::span<const std::byte> bytes) {
  STARLING_ASSIGN_OR_RETURN(bytes, write_direct(bytes));
  STARLING_RETURN_IF_ERROR(write_at(file_.get(), bytes, written_, url_));
  written_ += bytes.size();
  if (written_ - flushing_to_ >= kFlushBytes) {
    ::sync_file_range(file_.get(), static_cast<off_t>(flushing_to_),
                      static_cast<off_t>(written_ - flushing_to_), SYNC_FILE_RANGE_WRITE);
    flushing_to_ = written_;
  }
  return absl::OkStatus();
}

Status LocalWriter::publish() {
  STARLING_RETURN_IF_ERROR(failed_);
  if (!file_.is_open()) return failed_precondition("{}: publish: already published", url_);
  failed_ = publish_once();
  return failed_;
}

Status LocalWriter::publish_once() {
  STARLING_RETURN_IF_ERROR(write_through(pending_));
  pending_ = {};
  if (::fsync(file_.get()) != 0) return system_error(errno, url_, "sync");
  if (const int error = file_.close(); error != 0) return system_error(error, url_, "close");
  STARLING_RETURN_IF_ERROR(rename_path(temporary_path_, path_, existing_, url_));
  temporary_exists_ = false;
  return sync_directory(parent_path(path_), url_);
}

StatusOr<std::unique_ptr<AppendFile>> LocalAppendFile::open(const Url& url) {
  const std::string text = url.text();
  STARLING_RETURN_IF_ERROR(make_parent_durable(url.path, text));
  Descriptor file(::open(url.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.is_open()) return system_error(errno, text, "open for appending");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error(errno, text, "open for appending");
  if (!S_ISREG(info.st_mode))
    return failed_precondition("{}: open for appending: not a regular file", text);
  // The file may have been made a moment ago, by us or by a process that died before it synced the
  // name.
  STARLING_RETURN_IF_ERROR(sync_directory(parent_path(url.path), text));
  return std::unique_ptr<AppendFile>(
      new LocalAppendFile(text, std::move(file), static_cast<uint64_t>(info.st_size)));
}

LocalAppendFile::LocalAppendFile(std::string url, Descriptor file, uint64_t size)
    : url_(std::move(url)), file_(std::move(file)), size_(size) {}

Status LocalAppendFile::append(std::span<const std::byte> bytes) {
  STARLING_RETURN_IF_ERROR(write_at(file_.get(), bytes, size_, url_));
  size_ += bytes.size();
  return absl::OkStatus();
}

Status LocalAppendFile::sync() {
  // Not fdatasync alone on all systems; on Linux it also makes the new size durable.
  if (::fdatasync(file_.get()) != 0) return system_error(errno, url_, "sync");
  return absl::OkStatus();
}

Status LocalAppendFile::truncate(uint64_t bytes) {
  if (bytes > size_)
    return invalid_argument("{}: truncate to {}: the file has {} bytes", url_, bytes, size_);
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    return system_error(errno, url_, "truncate");
  size_ = bytes;
  if (::fsync(file_.get()) != 0) return system_error(errno, url_, "sync");
  return absl::OkStatus();
}

}  // namespace starling
