// AppendLog is a file of records that grows at its end and survives a crash:
// docs/format/append_log.md gives every byte.
//
// What was appended before a sync() that returned OK is read back whole after any crash. Records
// after it may be there or not; a torn tail is cut off when the log is opened. Local and mem; hdfs
// answers Unimplemented. Uses: base, xxhash. Threads: one owner at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/file_system.h"

namespace starling {

struct AppendLogOptions {
  uint32_t record_bytes_max = 64 << 20;
};

class AppendLog {
 public:
  // Gets each record in the order of appending. An error ends the opening with it.
  using Visit = std::function<Status(std::span<const std::byte> record)>;

  // Opens or makes the log, hands every whole record to `visit`, cuts a torn tail.
  //
  // DataLoss: a record that had been synced is damaged; the message names the file and the offset,
  // nothing is cut. Unimplemented: the store cannot append. FailedPrecondition: the file is not a
  // log.
  static StatusOr<std::unique_ptr<AppendLog>> open(FileSystem& fs, std::string_view url,
                                                   const Visit& visit,
                                                   AppendLogOptions options = {});

  // InvalidArgument: an empty record, or one larger than record_bytes_max. Other codes: the disk;
  // the log then refuses more until it is opened again, because what lies at its end is not known.
  Status append(std::span<const std::byte> record);
  // Returns when all appended records are durable.
  Status sync();

  uint64_t size() const { return file_->size(); }
  // How many bytes of a torn tail the opening cut.
  uint64_t cut_bytes() const { return cut_bytes_; }
  const std::string& url() const { return file_->url(); }

 private:
  AppendLog(std::unique_ptr<AppendFile> file, AppendLogOptions options);
  Status write_head();
  Status recover(FileSystem& fs, const Visit& visit);

  const std::unique_ptr<AppendFile> file_;
  const AppendLogOptions options_;
  std::vector<std::byte> buffer_;
  uint64_t durable_ = 0;  // bytes that a sync has covered
  uint64_t cut_bytes_ = 0;
  Status failed_;
};

}  // namespace starling
