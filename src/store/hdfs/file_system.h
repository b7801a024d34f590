// HdfsFileSystem is an HDFS cluster, reached through the WebHDFS REST of its name nodes: no JVM, no
// shell, no RPC port.
//
// hdfs://host:port/path, port of the name node's HTTP (9870) or HTTPS (9871) server; two name nodes
// of a pair as hdfs://a:9870,b:9870/path or by a name that HdfsOptions::name_services knows.
// webhdfs:// and swebhdfs:// say http and https as in Hadoop. Uses: base, libcurl. Threads: as
// FileSystem; a reader's ranges move while its read() runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "store/file_system.h"
#include "store/temporary.h"
#include "store/url.h"

namespace starling {

struct HdfsOptions {
  Incarnation incarnation{};  // of this process, for temporary names
  std::string user;  // the system's user when empty; HDFS refuses writes of nobody in particular
  std::string delegation_token;  // speaks for its user; `user` is then not sent
  bool is_https = false;
  std::string ca_file;  // PEM of whom to trust; the system's when empty
  // hdfs://name/path -> {"host:port", "host:port"}, tried in turn.
  std::map<std::string, std::vector<std::string>> name_services;

  Duration connect_timeout = seconds(5);
  Duration call_timeout = seconds(20);   // of one request to a name node
  Duration stall_timeout = seconds(60);  // of a stream that moves no byte
  Duration retry_for = seconds(60);      // a call that is safe to repeat is repeated until then
  Duration backoff_min = milliseconds(50);
  Duration backoff_max = seconds(2);

  uint64_t block_bytes = 0;  // of new files; the cluster's default when 0
  uint32_t replication = 0;  // the same

  // A read of at least parallel_bytes_min runs as this many ranges at once, each held in memory.
  uint32_t parallel_ranges = 4;
  uint64_t range_bytes = 32 << 20;
  uint64_t parallel_bytes_min = 128 << 20;
};

class NameNodes;

class HdfsFileSystem final : public FileSystem {
 public:
  // `clock` must outlive what it returns. InvalidArgument: an option is out of range, or the
  // authority names no host.
  static StatusOr<std::unique_ptr<FileSystem>> make(const Url& url, HdfsOptions options,
                                                    const Clock& clock);
  ~HdfsFileSystem() override;

  StatusOr<std::unique_ptr<Reader>> open_read(std::string_view url, ReadRange range) override;
  StatusOr<std::unique_ptr<Writer>> open_write(std::string_view url, Existing existing) override;
  // Unimplemented: a file that is closed at each sync, or loses its tail with its data node, is no
  // log.
  StatusOr<std::unique_ptr<AppendFile>> open_append(std::string_view url) override;
  StatusOr<FileInfo> stat(std::string_view url) override;
  StatusOr<std::vector<FileInfo>> list_directory(std::string_view url) override;
  Status make_directories(std::string_view url) override;
  Status rename(std::string_view from, std::string_view to, Existing existing) override;
  Status remove(std::string_view url, Recursive recursive) override;

 private:
  explicit HdfsFileSystem(std::shared_ptr<NameNodes> nodes);
  // The path as the REST calls take it. InvalidArgument when the URL belongs to another cluster.
  StatusOr<std::string> path_of(std::string_view url) const;

  const std::shared_ptr<NameNodes> nodes_;
  std::string authority_;
  TemporaryNames temporaries_;
};

}  // namespace starling
