// FileSystem is the one door to files: what reads samples or writes checkpoints goes through it.
//
// A maker (local, hdfs, memory, next S3) implements the virtual calls, adds its scheme in
// file_systems.cc, and runs conformance_suite.cc over itself. Uses: base. Threads: a FileSystem may
// be used from any thread; a Reader, Writer or AppendFile has one owner at a time.
//
// Codes that every call may end with, and what to do: NotFound; PermissionDenied; AlreadyExists;
// InvalidArgument (the URL or an option is wrong); FailedPrecondition (a directory where a file is
// needed, or the other way round); Unavailable (the remote side did not answer by the deadline; a
// retry is safe, of a write as a whole); ResourceExhausted (disk or quota full); DataLoss (the
// bytes are damaged); Unauthenticated. Messages name the URL, the operation and what the remote
// side said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace starling {

struct FileInfo {
  std::string url;  // whole: it can be opened as it stands
  bool is_directory = false;
  bool is_link = false;  // a symbolic link; `**` does not descend into it
  uint64_t bytes = 0;
  int64_t modified_ms = 0;  // since 1970

  std::string name() const;
};

// Reads the bytes of one file, front to back.
class Reader {
 public:
  virtual ~Reader() = default;

  // Fills `into` from its front and returns how many bytes; fewer than asked is ordinary, 0 is the
  // end. After an error every later call gives an error again.
  virtual StatusOr<size_t> read(std::span<std::byte> into) = 0;

  // Makes a read that waits on another thread, and all later ones, end with Cancelled soon. Local
  // disks do not wait.
  virtual void interrupt() {}

  // What the bytes are, for messages.
  virtual const std::string& url() const = 0;
};

// Writes one file. Nothing is seen under its name before publish() has returned OK; destroying a
// writer that was not published removes its temporary. A write that failed is started again as a
// whole, with a new writer.
class Writer {
 public:
  virtual ~Writer() = default;

  // After an error every later call gives that error again.
  virtual Status write(std::span<const std::byte> bytes) = 0;

  // Makes the bytes durable and shows them under the final name by one atomic rename. Called once,
  // last. After an error the old file, if any, is untouched, with one exception: when the code is
  // Unavailable the rename may have happened and its answer been lost; the name then shows the old
  // or the new file, whole.
  virtual Status publish() = 0;

  virtual const std::string& url() const = 0;
};

// A file that grows at its end, for logs. Readers see what was appended, durable or not.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  // After a failed append the bytes past `size()` are undefined; truncate or give up the file.
  virtual Status append(std::span<const std::byte> bytes) = 0;
  // Returns when all appended bytes survive a power cut.
  virtual Status sync() = 0;
  // Cuts the file to `bytes`, which must not be more than it has, durably.
  virtual Status truncate(uint64_t bytes) = 0;
  virtual uint64_t size() const = 0;
  virtual const std::string& url() const = 0;
};

inline constexpr uint64_t kToEnd = UINT64_MAX;

struct ReadRange {
  uint64_t offset = 0;
  uint64_t bytes = kToEnd;  // fewer when the file ends before
  // Nobody reads it again soon. A local disk is then read around the system's cache of files, by
  // whoever reads large pieces into memory that starts at a page (ReadAhead does).
  bool is_once = false;
};

// What happens to a file that already has the final name.
enum class Existing { kReplace, kKeep };
enum class Recursive { kNo, kYes };

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // OutOfRange: the offset lies past the end (at the end is an empty range). Aborted (hdfs): the
  // file was replaced or deleted while it was read; open it again.
  virtual StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url,
                                                      ReadRange range = {}) = 0;
  // Makes missing parent directories. kKeep: publish() ends with AlreadyExists when the name is
  // taken by then.
  virtual StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url,
                                                       Existing existing = Existing::kReplace) = 0;
  // Makes the file when it is missing. Unimplemented where files cannot grow durably (hdfs).
  virtual StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) = 0;
  virtual StatusOr<FileInfo> stat(std::string_view url) = 0;
  // What lies directly in a directory, hidden names and temporaries included, sorted by name.
  virtual StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) = 0;
  // With all parents; an existing directory is fine. AlreadyExists: a file has the name.
  virtual Status make_directories(std::string_view url) = 0;
  // Atomic and durable. A file replaces a file, a directory an empty directory; the parent of `to`
  // must exist.
  virtual Status rename(std::string_view from, std::string_view to,
                        Existing existing = Existing::kReplace) = 0;
  // NotFound when there is nothing. FailedPrecondition: a directory that is not empty, without
  // kYes.
  virtual Status remove(std::string_view url, Recursive recursive = Recursive::kNo) = 0;

  // False also where a parent is missing or a file.
  StatusOr<bool> exists(std::string_view url);

  // What matches a pattern (pattern.h), sorted by URL. A name without wildcards gives itself, or
  // NotFound; a pattern that matches nothing gives an empty list. Names that start with a dot are
  // matched by patterns that do.
  StatusOr<std::vector<FileInfo>> list(std::string_view pattern);
};

// Reads until `into` is full or the end; returns how many bytes.
StatusOr<size_t> read_full(Reader& reader, std::span<std::byte> into);
// Reads to the end. ResourceExhausted when there is more than `bytes_max`.
StatusOr<std::string> read_all(Reader& reader, uint64_t bytes_max);
StatusOr<std::string> read_file(FileSystem& fs, std::string_view url,
                                uint64_t bytes_max = uint64_t{1} << 30);
Status write_file(FileSystem& fs, std::string_view url, std::string_view bytes,
                  Existing existing = Existing::kReplace);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace starling
