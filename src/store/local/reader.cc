#include "store/local/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace starling {
namespace {

constexpr size_t kDirectUnit = 4096;  // bytes; of places, lengths and memory

}  // namespace

StatusOr<std::unique_ptr<Reader>> LocalReader::open(const Url& url, ReadRange range) {
  const std::string text = url.text();
  Descriptor file(::open(url.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open()) {
    if (errno == ENOTDIR) return not_found("{}: open for reading: a parent is a file", text);
    return system_error(errno, text, "open for reading");
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error(errno, text, "open for reading");
  if (S_ISDIR(info.st_mode)) return system_error(EISDIR, text, "open for reading");
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (S_ISREG(info.st_mode)) {
    if (range.offset > bytes) {
      return out_of_range("{}: open for reading: offset {} lies past the end at {}", text,
                          range.offset, bytes);
    }
    if (range.offset > 0 && ::lseek(file.get(), static_cast<off_t>(range.offset), SEEK_SET) < 0) {
      return system_error(errno, text, "seek");
    }
  } else if (range.offset > 0) {
    return failed_precondition(
        "{}: open for reading: only a regular file can be read from an offset", text);
  }
  // Doubles the kernel's window. Asking for more by WILLNEED costs twice the time of a cached read,
  // measured.
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Descriptor direct;
  if (range.is_once && S_ISREG(info.st_mode)) {
    direct = Descriptor(::open(url.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY));
  }
  return std::unique_ptr<Reader>(new LocalReader(text, std::move(file), std::move(direct), range));
}

LocalReader::LocalReader(std::string url, Descriptor file, Descriptor direct, ReadRange range)
    : url_(std::move(url)),
      file_(std::move(file)),
      direct_(std::move(direct)),
      at_(range.offset),
      left_(range.bytes) {}

ssize_t LocalReader::read_some(std::span<std::byte> into) {
  if (!direct_.is_open()) return ::read(file_.get(), into.data(), into.size());
  const auto at = static_cast<off_t>(at_);
  const size_t whole = into.size() / kDirectUnit * kDirectUnit;
  if (whole > 0 && (reinterpret_cast<uintptr_t>(into.data()) | at_) % kDirectUnit == 0) {
    const ssize_t got = ::pread(direct_.get(), into.data(), whole, at);
    if (got >= 0 || errno != EINVAL) return got;
  }
  return ::pread(file_.get(), into.data(), into.size(), at);
}

StatusOr<size_t> LocalReader::read(std::span<std::byte> into) {
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(into.size(), left_));
  if (wanted == 0) return size_t{0};
  while (true) {
    const ssize_t got = read_some(into.first(wanted));
    if (got >= 0) {
      at_ += static_cast<uint64_t>(got);
      left_ -= static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    }
    if (errno != EINTR) return system_error(errno, fmt::format("{} at {}", url_, at_), "read");
  }
}

}  // namespace starling
