// One file of a cut: a head and records inside a checksummed block stream.
// docs/format/checkpoint.md gives every byte.
//
// Uses: base, store. Threads: a reader or writer has one owner at a time; each has a thread of its
// own that reads ahead or writes behind.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ps/checkpoint.pb.h"
#include "store/file_system.h"

namespace starling {

enum class CutRecordKind : uint32_t {
  kEnd = 0,      // of the file; number 0
  kBucket = 1,   // all of a bucket, which replaces what was there
  kChanges = 2,  // the changed rows of a bucket, and its admission state
  kDeleted = 3,  // keys (uint64) whose rows went
  kPart = 4,     // of a variable; number is the part
  kState = 5,    // a ShardPart
};

struct FileHead {
  ckpt::FileKind kind = ckpt::FILE_KIND_UNKNOWN;
  uint64_t cut_id = 0;
  std::string table;  // of rows
};

class CutFileWriter {
 public:
  // Codes as FileSystem::open_write; AlreadyExists when the name is taken.
  static StatusOr<std::unique_ptr<CutFileWriter>> open(FileSystem& fs, const std::string& directory,
                                                       const std::string& name,
                                                       const FileHead& head);

  Status add(CutRecordKind kind, uint32_t number, std::span<const std::byte> bytes);
  // So far, with what the block stream adds.
  uint64_t bytes() const;
  // What the manifest says of the file, which is durable now.
  StatusOr<ckpt::File> publish();

 private:
  class Counted;
  CutFileWriter() = default;

  Counted* counted_ = nullptr;  // under blocks_
  std::unique_ptr<Writer> blocks_;
  uint64_t records_ = 0;
  ckpt::File file_;
};

struct FileRecord {
  CutRecordKind kind = CutRecordKind::kEnd;
  uint32_t number = 0;
  std::vector<std::byte> bytes;
};

class CutFileReader {
 public:
  // DataLoss: the file is missing, or is not what the manifest of `cut_id` says of it.
  static StatusOr<std::unique_ptr<CutFileReader>> open(FileSystem& fs, const std::string& directory,
                                                       const ckpt::File& file, uint64_t cut_id);
  // The same of a file whose bytes come from anywhere.
  static StatusOr<std::unique_ptr<CutFileReader>> over(std::unique_ptr<Reader> source,
                                                       const ckpt::File& file, uint64_t cut_id);

  // The next record; kEnd after the last, when the whole file has been checked. DataLoss names the
  // file.
  Status next(FileRecord& record);
  uint64_t bytes_read() const;

 private:
  class Hashed;
  CutFileReader() = default;
  Status read_head(uint64_t cut_id);
  Status read_exactly(std::span<std::byte> into);
  Status check_end();

  Hashed* hashed_ = nullptr;  // under blocks_
  std::unique_ptr<Reader> blocks_;
  ckpt::File file_;
  std::string url_;
  uint64_t records_ = 0;
  bool is_ended_ = false;
};

// The rows that a bucket's image says it has; 0 for what is no image.
uint64_t image_rows(std::span<const std::byte> image);

// A part of a variable as a record's bytes.
struct DensePart {
  std::string variable;
  uint64_t begin = 0;  // elements of the variable
  uint64_t end = 0;
  uint64_t version = 0;
  uint64_t updates = 0;
  std::vector<float> weights;
  std::vector<float> state;

  std::vector<std::byte> encode() const;
  // DataLoss: not such bytes.
  static StatusOr<DensePart> decode(std::span<const std::byte> bytes);
};

}  // namespace starling
