// What is left when servers of a real HDFS die, and what comes back. A program of its own: a test
// here leaves every server running, but others should not meet what its data nodes remember.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/thread.h"
#include "store/file_systems.h"
#include "store/hdfs/http.h"
#include "store/hdfs/test_cluster.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HdfsKillTest : public HdfsTest {
 protected:
  // Waits until every block of the file has two places.
  void replicate(const std::string& path) {
    cluster_->request("PUT", path, "op=SETREPLICATION&replication=2");
    EXPECT_TRUE(eventually([&] {
      const std::string reply = cluster_->request("GET", path, "op=GETFILEBLOCKLOCATIONS");
      size_t blocks = 0;
      for (size_t at = reply.find(kNames); at != std::string::npos; at = reply.find(kNames, at)) {
        at += kNames.size();
        if (reply.substr(at, reply.find(']', at) - at).find(',') == std::string::npos) return false;
        ++blocks;
      }
      return blocks > 0;
    })) << "the file was not replicated";
  }

  // What a caller does: a write that fails half way is started again as a whole. Data nodes keep
  // connections to a name node that died, and the first write through each fails with it.
  Status write_whole(FileSystem& fs, const std::string& url, std::string_view bytes) {
    Status status;
    eventually([&] {
      status = write_file(fs, url, bytes);
      return status.code() != StatusCode::kUnavailable;
    });
    return status;
  }

  // A file as another tool leaves it: its data node died during the upload, under the final name.
  void leave_under_construction(const std::string& path) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string locate =
          cluster_->request("PUT", path, "op=CREATE&noredirect=true&overwrite=true");
      const size_t begin = locate.find("http", 4);
      const std::string location = locate.substr(begin, locate.find('"', begin) - begin);
      HttpPool pool({});
      HttpUpload upload(pool, location, clock_);
      if (!upload.start(seconds(300)) ||
          !upload.send(bytes_of(random_bytes(1 << 20, 1)), seconds(300)))
        ::_exit(1);
      while (true) ::pause();
    }
    EXPECT_TRUE(eventually([&] { return *fs_->exists(url(path)); }));
    cluster_->control("kill-datanode", 0);
    cluster_->control("kill-datanode", 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    cluster_->control("start-datanode", 0);
    cluster_->control("start-datanode", 1);
  }

  // One that soon gives up what will not get better.
  std::unique_ptr<FileSystem> impatient() {
    HdfsOptions options = cluster_->options();
    options.retry_for = seconds(2);
    return cluster_->connect(options);
  }

  static constexpr std::string_view kNames = "\"names\":[";
};

TEST_F(HdfsKillTest, AReadSurvivesTheDeathOfItsDataNode) {
  const std::string data = random_bytes(48 << 20, 3);
  ASSERT_OK(write_whole(*fs_, url("/kill/read"), data));
  HdfsOptions options = cluster_->options();
  options.parallel_ranges = 1;
  const auto fs = cluster_->connect(options);
  // Each node in turn: whichever serves a reader, most of the file is still to come when it dies.
  for (const int node : {0, 1}) {
    replicate("/kill/read");
    std::vector<std::unique_ptr<Reader>> readers;
    std::vector<std::string> starts;
    for (int i = 0; i < 3; ++i) {
      auto reader = fs->open_read(url("/kill/read"), {});
      ASSERT_OK(reader);
      starts.emplace_back(1 << 20, '\0');
      ASSERT_OK(read_full(**reader, std::as_writable_bytes(std::span(starts.back()))));
      readers.push_back(*std::move(reader));
    }
    cluster_->control("kill-datanode", node);
    for (size_t i = 0; i < readers.size(); ++i) {
      const StatusOr<std::string> rest = read_all(*readers[i], 1 << 30);
      EXPECT_OK(rest);
      if (rest.ok()) {
        EXPECT_TRUE(starts[i] + *rest == data);
      }
    }
    // The name node still sends readers and writers to the dead one.
    EXPECT_TRUE(contents(*fs_, url("/kill/read")) == data);
    for (int i = 0; i < 4; ++i)
      EXPECT_OK(write_whole(*fs_, url(fmt::format("/kill/redirect{}", i)), "text"));
    cluster_->control("start-datanode", node);
  }
}

TEST_F(HdfsKillTest, AWriteFailsWithItsDataNodeAndSucceedsAsAWhole) {
  ASSERT_OK(write_whole(*fs_, url("/kill/write"), "old"));
  auto writer = fs_->open_write(url("/kill/write"), Existing::kReplace);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(bytes_of(random_bytes(2 << 20, 1))));
  cluster_->control("kill-datanode", 0);
  cluster_->control("kill-datanode", 1);
  Status status;
  for (int i = 0; i < 64 && status.ok(); ++i)
    status = (*writer)->write(bytes_of(random_bytes(1 << 20, 2)));
  if (status.ok()) status = (*writer)->publish();
  EXPECT_CODE(status, kUnavailable);
  EXPECT_THAT(test_status(status), HasSubstr(url("/kill/write")));
  cluster_->control("start-datanode", 0);
  cluster_->control("start-datanode", 1);
  writer->reset();
  EXPECT_EQ(contents(*fs_, url("/kill/write")), "old");
  EXPECT_OK(write_whole(*fs_, url("/kill/write"), "new"));
  EXPECT_EQ(contents(*fs_, url("/kill/write")), "new");
}

TEST_F(HdfsKillTest, WithTwoReplicasOneDeathCostsAtMostTheUploadUnderWay) {
  HdfsOptions options = cluster_->options();
  options.replication = 2;
  const auto fs = cluster_->connect(options);
  const std::string data = random_bytes(12 << 20, 4);
  for (const int node : {0, 1}) {
    auto writer = fs->open_write(url("/kill/two"), Existing::kReplace);
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->write(bytes_of(std::string_view(data).substr(0, 2 << 20))));
    cluster_->control("kill-datanode", node);
    Status status = (*writer)->write(bytes_of(std::string_view(data).substr(2 << 20)));
    if (status.ok()) status = (*writer)->publish();
    writer->reset();
    // The other replica's node does no harm; the node that is written to fails the upload, and the
    // next one succeeds.
    if (!status.ok()) {
      EXPECT_CODE(status, kUnavailable);
      EXPECT_OK(write_whole(*fs, url("/kill/two"), data));
    }
    EXPECT_TRUE(contents(*fs, url("/kill/two")) == data);
    cluster_->control("start-datanode", node);
    ASSERT_OK(fs->remove(url("/kill/two"), Recursive::kNo));
  }
}

TEST_F(HdfsKillTest, AFileLeftUnderConstructionIsNotReadAsEmpty) {
  leave_under_construction("/kill/open");
  const auto info = fs_->stat(url("/kill/open"));
  ASSERT_OK(info);
  EXPECT_EQ(info->bytes, 0u);
  EXPECT_FALSE(read_file(*impatient(), url("/kill/open")).ok());
  // It does not stand in the way of a new file.
  EXPECT_OK(write_whole(*fs_, url("/kill/open"), "new"));
  EXPECT_EQ(contents(*fs_, url("/kill/open")), "new");
}

TEST_F(HdfsKillTest, AFileWithoutAnyByteOfItsWriterYetIsNotReadAsEmpty) {
  const std::string locate =
      cluster_->request("PUT", "/kill/begun", "op=CREATE&noredirect=true&overwrite=true");
  const size_t begin = locate.find("http", 4);
  HttpPool pool({});
  HttpUpload upload(pool, locate.substr(begin, locate.find('"', begin) - begin), clock_);
  ASSERT_TRUE(upload.start(seconds(300)));
  ASSERT_TRUE(eventually([&] { return *fs_->exists(url("/kill/begun")); }));
  EXPECT_CODE(read_file(*impatient(), url("/kill/begun")).status(), kUnavailable);
}

TEST_F(HdfsKillTest, ARenamedFileUnderConstructionIsStillNotReadAsEmpty) {
  ASSERT_OK(write_whole(*fs_, url("/kill/renamed"), "old"));
  leave_under_construction("/kill/torn");
  // HDFS moves it like any other, so a rename alone proves nothing about the bytes.
  EXPECT_OK(fs_->rename(url("/kill/torn"), url("/kill/renamed")));
  EXPECT_CODE(fs_->stat(url("/kill/torn")), kNotFound);
  EXPECT_FALSE(read_file(*impatient(), url("/kill/renamed")).ok());
  EXPECT_OK(write_whole(*fs_, url("/kill/renamed"), "new"));
  EXPECT_EQ(contents(*fs_, url("/kill/renamed")), "new");
}

TEST_F(HdfsKillTest, ANameNodeThatIsDownIsUnavailableAndComesBackWithItsData) {
  ASSERT_OK(write_whole(*fs_, url("/kill/name"), "text"));
  cluster_->control("kill-namenode");
  HdfsOptions options = cluster_->options();
  options.retry_for = milliseconds(500);
  const Status status = cluster_->connect(options)->open_read(url("/kill/name"), {}).status();
  EXPECT_CODE(status, kUnavailable);
  EXPECT_THAT(test_status(status),
              AllOf(HasSubstr(url("/kill/name")), HasSubstr("open for reading")));
  EXPECT_CODE(cluster_->connect(options)->open_write(url("/kill/name"), Existing::kReplace),
              kUnavailable);
  // A patient caller waits it out.
  {
    Thread restart({.name = "restart", .core = {}},
                   [this] { cluster_->control("start-namenode"); });
    EXPECT_EQ(contents(*fs_, url("/kill/name")), "text");
  }
  EXPECT_OK(write_whole(*fs_, url("/kill/name"), "new"));
}

}  // namespace
}  // namespace starling
