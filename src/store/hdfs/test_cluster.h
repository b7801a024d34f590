// TestCluster is a real HDFS for the tests of this program: tools/hdfs.py starts it once, and takes
// it down at the end.
//
// Uses: gtest, tools/hdfs.py. Threads: the test's main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/hdfs/file_system.h"
#include "store/test_tools.h"

namespace starling {

class TestCluster {
 public:
  // The cluster of this program, started by the first call. Null, with the reason, when it cannot
  // run here; where CI=true that is a failure of the calling test.
  static TestCluster* get(std::string* reason);
  ~TestCluster();

  const std::string& host() const { return host_; }  // 127.0.0.1:port of the name node's HTTP
  const std::string& https_host() const { return https_host_; }  // of its HTTPS
  const std::string& rpc_host() const { return rpc_host_; }
  const std::string& ca_file() const { return ca_file_; }
  // Data nodes' web servers, 127.0.0.1:port.
  const std::vector<std::string>& data_nodes() const { return data_nodes_; }
  std::string url(std::string_view path) const { return "hdfs://" + host_ + std::string(path); }

  // Options with patience for a test.
  HdfsOptions options() const;
  std::unique_ptr<FileSystem> connect(const HdfsOptions& options, std::string_view host = "") const;
  // A request to the name node as the superuser, redirects followed; the reply's body.
  std::string request(const std::string& method, const std::string& path,
                      const std::string& query) const;

  // tools/hdfs.py kill-datanode and the like, checked.
  void control(const std::string& command, int index = 0);

 private:
  TestCluster() = default;
  bool start(std::string* reason);

  TemporaryDirectory directory_;
  std::string host_;
  std::string https_host_;
  std::string user_;  // who started it: the superuser
  std::string rpc_host_;
  std::string ca_file_;
  std::vector<std::string> data_nodes_;
  bool is_up_ = false;
  RealClock clock_;
};

// A test against the cluster, skipped with its reason where there is none.
class HdfsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    cluster_ = TestCluster::get(&reason);
    // A skip does not stop a test that has failed already, as it has where HDFS is required.
    if (HasFailure()) FAIL() << reason;
    if (cluster_ == nullptr) GTEST_SKIP() << reason;
    fs_ = cluster_->connect(cluster_->options());
  }
  std::string url(std::string_view path) const { return cluster_->url(path); }

  TestCluster* cluster_ = nullptr;
  std::unique_ptr<FileSystem> fs_;
  RealClock clock_;
};

}  // namespace starling
