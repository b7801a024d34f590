// HdfsWriter streams a file to a data node under a temporary name, then publishes it: 201, the
// right length, one rename.
//
// A data node that loses its client closes the file at what it has, and it looks complete: only the
// comparison and the rename make it real. Uses: base, libcurl. Threads: one owner at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/hdfs/name_nodes.h"

namespace starling {

class HdfsWriter final : public Writer {
 public:
  static StatusOr<std::unique_ptr<Writer>> open(std::shared_ptr<NameNodes> nodes,
                                                std::string_view path, std::string_view url,
                                                Existing existing, const std::string& temporary);
  ~HdfsWriter() override;

  // PermissionDenied and quota errors of HDFS show here or at publish(): the data node finds them,
  // while bytes flow.
  Status write(std::span<const std::byte> bytes) override;
  Status publish() override;
  const std::string& url() const override { return url_; }

 private:
  HdfsWriter(std::shared_ptr<NameNodes> nodes, std::string path, std::string temporary,
             std::string url);
  // Finds a data node that takes the file; nothing was sent before, so another one may be tried.
  Status connect();
  Status send(std::span<const std::byte> bytes);
  Status publish_once();
  Status upload_error() const;

  const std::shared_ptr<NameNodes> nodes_;
  const std::string path_;
  const std::string temporary_;
  const std::string url_;
  Existing existing_ = Existing::kReplace;
  std::unique_ptr<HttpUpload> upload_;
  std::string peer_;                // the data node
  std::vector<std::byte> pending_;  // small writes, gathered
  uint64_t written_ = 0;
  bool is_published_ = false;
  Status failed_;
};

}  // namespace starling
