#include "store/hdfs/file_system.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>

#include "store/conformance_suite.h"
#include "store/file_systems.h"
#include "store/hdfs/test_cluster.h"
#include "store/temporary.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::atomic<int> roots{0};

class HdfsUnderTest final : public StoreUnderTest {
 public:
  explicit HdfsUnderTest(TestCluster& cluster)
      : cluster_(cluster),
        path_(fmt::format("/conformance/{}", ++roots)),
        fs_(as_process(kTestIncarnation)) {}
  ~HdfsUnderTest() override { EXPECT_OK(fs_->remove(root(), Recursive::kYes)); }

  FileSystem& fs() override { return *fs_; }
  std::string root() const override { return cluster_.url(path_); }
  std::unique_ptr<FileSystem> as_process(Incarnation incarnation) override {
    HdfsOptions options = cluster_.options();
    options.incarnation = incarnation;
    options.block_bytes = 1 << 20;
    return cluster_.connect(options);
  }
  int kills() const override { return 24; }
  std::unique_ptr<FileSystem> as_nobody() override {
    cluster_.request("PUT", path_ + "/locked/file", "op=SETPERMISSION&permission=600");
    HdfsOptions options = cluster_.options();
    options.user = "nobody";
    return cluster_.connect(options);
  }
  std::string small_root(std::string*) override {
    EXPECT_OK(fs_->make_directories(root() + "/small"));
    // HDFS counts whole blocks of a file that is being written.
    const std::string quota =
        fmt::format("op=SETQUOTA&namespacequota=1000&storagespacequota={}", 4 << 20);
    EXPECT_THAT(cluster_.request("PUT", path_ + "/small", quota), HasSubstr("200"));
    return root() + "/small";
  }

 private:
  TestCluster& cluster_;
  const std::string path_;
  const std::unique_ptr<FileSystem> fs_;
};

INSTANTIATE_TEST_SUITE_P(Hdfs, StoreConformance,
                         ::testing::Values(StoreMaker{
                             "hdfs", [](std::string* reason) -> std::unique_ptr<StoreUnderTest> {
                               TestCluster* cluster = TestCluster::get(reason);
                               if (cluster == nullptr) return nullptr;
                               auto store = std::make_unique<HdfsUnderTest>(*cluster);
                               EXPECT_OK(store->fs().make_directories(store->root()));
                               return store;
                             }}));

}  // namespace
}  // namespace starling
