// The traps of a real HDFS: what its REST does that a reader of the manual would not expect, and
// what crashes leave.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/thread.h"
#include "store/file_systems.h"
#include "store/hdfs/fake_server.h"
#include "store/hdfs/http.h"
#include "store/hdfs/test_cluster.h"
#include "store/read_ahead.h"
#include "store/temporary.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HdfsTrapTest : public ::testing::Test {
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

TEST_F(HdfsTrapTest, TheRealRpcPortGivesAnErrorThatNamesTheHttpPort) {
  const auto fs = cluster_->connect(cluster_->options(), cluster_->rpc_host());
  const Status status = fs->stat("hdfs://" + cluster_->rpc_host() + "/").status();
  EXPECT_CODE(status, kInvalidArgument);
  EXPECT_THAT(test_status(status), AllOf(HasSubstr("RPC port"), HasSubstr("9870")));
}

TEST_F(HdfsTrapTest, HttpsWorksFromEndToEnd) {
  HdfsOptions options = cluster_->options();
  options.ca_file = cluster_->ca_file();
  auto made = HdfsFileSystem::make(*parse_url("swebhdfs://" + cluster_->https_host() + "/"),
                                   options, clock_);
  ASSERT_OK(made);
  const std::string file = "swebhdfs://" + cluster_->https_host() + "/tls/file";
  const std::string data = random_bytes(3 << 20, 7);
  ASSERT_OK(write_file(**made, file, data));
  EXPECT_TRUE(contents(**made, file) == data);
}

TEST_F(HdfsTrapTest, AServerThatIsNotTrustedGetsNothing) {
  HdfsOptions options = cluster_->options();
  options.is_https = true;
  options.retry_for = seconds(5);
  const auto fs = cluster_->connect(options, cluster_->https_host());
  const Status status = fs->stat("hdfs://" + cluster_->https_host() + "/").status();
  EXPECT_CODE(status, kUnavailable);
  EXPECT_THAT(test_status(status), HasSubstr("certificate"));
}

TEST_F(HdfsTrapTest, TheLivingNameNodeOfAPairServes) {
  const std::string pair = dead_host() + "," + cluster_->host();
  const auto fs = cluster_->connect(cluster_->options(), pair);
  const std::string file = "hdfs://" + pair + "/pair/file";
  ASSERT_OK(write_file(*fs, file, "text"));
  EXPECT_EQ(contents(*fs, file), "text");
}

TEST_F(HdfsTrapTest, TheSystemsUserIsSentWhenNoneIsGiven) {
  // Without a user HDFS takes "dr.who", who may not write.
  HdfsOptions options = cluster_->options();
  options.user = "";
  EXPECT_OK(write_file(*cluster_->connect(options), url("/user/file"), "text"));
  options.user = "dr.who";
  EXPECT_CODE(write_file(*cluster_->connect(options), url("/user/file"), "text"),
              kPermissionDenied);
}

TEST_F(HdfsTrapTest, AColonInANameIsInvalid) {
  const Status status = write_file(*fs_, url("/names/a:b"), "x");
  EXPECT_CODE(status, kInvalidArgument);
  EXPECT_THAT(test_status(status), HasSubstr(url("/names/a:b")));
}

TEST_F(HdfsTrapTest, AJavaStackIsNotShown) {
  HdfsOptions options = cluster_->options();
  options.user = "nobody";
  const Status status = write_file(*cluster_->connect(options), url("/stack/file"), "text");
  EXPECT_CODE(status, kPermissionDenied);
  EXPECT_THAT(test_status(status),
              AllOf(HasSubstr("Permission denied: user=nobody"), Not(HasSubstr("\tat "))));
}

TEST_F(HdfsTrapTest, PublishOntoADirectoryDoesNotMoveInto) {
  auto writer = fs_->open_write(url("/into/name"), Existing::kReplace);
  ASSERT_OK(writer);
  ASSERT_OK(fs_->make_directories(url("/into/name")));
  EXPECT_CODE((*writer)->publish(), kFailedPrecondition);
  EXPECT_TRUE(fs_->list_directory(url("/into/name"))->empty());
}

TEST_F(HdfsTrapTest, RangesInParallelGiveTheSameBytes) {
  const std::string data = random_bytes((9 << 20) + 123, 5);
  ASSERT_OK(write_file(*fs_, url("/ranges/file"), data));
  HdfsOptions options = cluster_->options();
  options.range_bytes = 1 << 20;
  options.parallel_ranges = 4;
  options.parallel_bytes_min = 2 << 20;
  const auto parallel = cluster_->connect(options);
  EXPECT_TRUE(contents(*parallel, url("/ranges/file")) == data);
  auto part = parallel->open_read(url("/ranges/file"), {.offset = 1'234'567, .bytes = 7'000'001});
  ASSERT_OK(part);
  EXPECT_TRUE(*read_all(**part, 1 << 30) == data.substr(1'234'567, 7'000'001));
}

TEST_F(HdfsTrapTest, ASlowReaderOfAReplacedFileNeverGetsAMixture) {
  const std::string old_data(24 << 20, 'o');
  ASSERT_OK(write_file(*fs_, url("/slow/file"), old_data));
  for (const uint32_t ranges : {1u, 3u}) {
    HdfsOptions options = cluster_->options();
    options.parallel_ranges = ranges;
    options.range_bytes = 2 << 20;
    options.parallel_bytes_min = 4 << 20;
    const auto fs = cluster_->connect(options);
    auto reader = fs->open_read(url("/slow/file"), {});
    ASSERT_OK(reader);
    std::vector<std::byte> some(1000);
    ASSERT_OK(read_full(**reader, some));
    ASSERT_OK(write_file(*fs_, url("/slow/file"), std::string(24 << 20, 'n')));
    const StatusOr<std::string> rest = read_all(**reader, 1 << 30);
    if (rest.ok()) {
      EXPECT_TRUE(*rest == old_data.substr(1000)) << rest->size();
    } else {
      EXPECT_CODE(rest, kAborted);
    }
    ASSERT_OK(write_file(*fs_, url("/slow/file"), old_data));
  }
}

TEST_F(HdfsTrapTest, AHalfFileOfADeadClientLooksCompleteAndIsNeverPublished) {
  const pid_t child = ::fork();
  if (child == 0) {
    HdfsOptions options = cluster_->options();
    options.incarnation = Incarnation{0xdead};
    const auto fs = cluster_->connect(options);
    auto writer = fs->open_write(url("/client/file"), Existing::kReplace);
    if (!writer.ok() || !(*writer)->write(bytes_of(random_bytes(4 << 20, 1))).ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  ASSERT_TRUE(WIFSIGNALED(state));
  EXPECT_CODE(fs_->stat(url("/client/file")), kNotFound);
  const auto left = fs_->list_directory(url("/client"));
  ASSERT_OK(left);
  ASSERT_EQ(left->size(), 1u);
  EXPECT_EQ(incarnation_of_temporary(left->at(0).name()), Incarnation{0xdead});
  const auto removed = remove_abandoned(*fs_, url("/client"),
                                        [](Incarnation i) { return i == Incarnation{0xdead}; });
  ASSERT_OK(removed);
  EXPECT_EQ(*removed, 1u);
}

TEST_F(HdfsTrapTest, ReadAheadOverHdfsGivesTheSameBytes) {
  const std::string data = random_bytes(5 << 20, 9);
  ASSERT_OK(write_file(*fs_, url("/ahead/file"), data));
  auto reader = fs_->open_read(url("/ahead/file"), {});
  ASSERT_OK(reader);
  auto ahead = ReadAhead::start(*std::move(reader), {.chunk_bytes = 300'000, .chunks = 3});
  ASSERT_OK(ahead);
  EXPECT_TRUE(*read_all(**ahead, 1 << 30) == data);
}

// Tests that kill servers come last and leave all of them running.
class HdfsZKillTest : public HdfsTrapTest {
 protected:
  void replicate(const std::string& path) {
    cluster_->request("PUT", path, "op=SETREPLICATION&replication=2");
    for (int i = 0; i < 300; ++i) {
      const std::string reply = cluster_->request("GET", path, "op=GETFILEBLOCKLOCATIONS");
      const size_t first = reply.find("\"names\":[\"");
      if (first != std::string::npos &&
          reply.substr(first, reply.find(']', first) - first).find(',') != std::string::npos)
        return;
      std::this_thread::sleep_for(milliseconds(100));
    }
    ADD_FAILURE() << "the file was not replicated";
  }
};

TEST_F(HdfsZKillTest, AReadSurvivesTheDeathOfItsDataNode) {
  const std::string data = random_bytes(48 << 20, 3);
  ASSERT_OK(write_file(*fs_, url("/kill/read"), data));
  replicate("/kill/read");
  HdfsOptions options = cluster_->options();
  options.parallel_ranges = 1;
  const auto fs = cluster_->connect(options);
  // Each node in turn: whichever serves a reader, most of the file is still to come when it dies.
  for (const int node : {0, 1}) {
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
      EXPECT_OK(write_file(*fs_, url(fmt::format("/kill/redirect{}", i)), "text"));
    cluster_->control("start-datanode", node);
  }
}

TEST_F(HdfsZKillTest, AWriteFailsWithItsDataNodeAndSucceedsAsAWhole) {
  // Two writers, so that each data node most likely serves one; the dead one's must fail, and
  // nothing may be shown.
  ASSERT_OK(write_file(*fs_, url("/kill/write"), "old"));
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
  EXPECT_OK(write_file(*fs_, url("/kill/write"), "new"));
  EXPECT_EQ(contents(*fs_, url("/kill/write")), "new");
}

TEST_F(HdfsZKillTest, WithTwoReplicasOneDeathCostsAtMostTheUploadUnderWay) {
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
      EXPECT_OK(write_file(*fs, url("/kill/two"), data));
    }
    EXPECT_TRUE(contents(*fs, url("/kill/two")) == data);
    cluster_->control("start-datanode", node);
    ASSERT_OK(fs->remove(url("/kill/two"), Recursive::kNo));
  }
}

TEST_F(HdfsZKillTest, AFileLeftUnderConstructionIsNotReadAsEmpty) {
  // As another tool leaves it: its data node died during the upload, under the final name.
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string locate =
        cluster_->request("PUT", "/kill/open", "op=CREATE&noredirect=true&overwrite=true");
    const size_t begin = locate.find("http", 4);
    std::string location = locate.substr(begin, locate.find('"', begin) - begin);
    HttpPool pool({});
    HttpUpload upload(pool, location, clock_);
    if (!upload.start(seconds(5)) || !upload.send(bytes_of(random_bytes(1 << 20, 1)), seconds(5)))
      ::_exit(1);
    ::sleep(60);
    ::_exit(0);
  }
  for (int i = 0; i < 100 && !*fs_->exists(url("/kill/open")); ++i)
    std::this_thread::sleep_for(milliseconds(50));
  cluster_->control("kill-datanode", 0);
  cluster_->control("kill-datanode", 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  cluster_->control("start-datanode", 0);
  cluster_->control("start-datanode", 1);
  const auto info = fs_->stat(url("/kill/open"));
  ASSERT_OK(info);
  EXPECT_EQ(info->bytes, 0u);
  HdfsOptions options = cluster_->options();
  options.retry_for = seconds(2);
  const auto fs = cluster_->connect(options);
  EXPECT_FALSE(read_file(*fs, url("/kill/open")).ok());
  // It does not stand in the way of a new file.
  EXPECT_OK(write_file(*fs, url("/kill/open"), "new"));
  EXPECT_EQ(contents(*fs, url("/kill/open")), "new");
}

TEST_F(HdfsZKillTest, ANameNodeThatIsDownIsUnavailableAndComesBackWithItsData) {
  ASSERT_OK(write_file(*fs_, url("/kill/name"), "text"));
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
  HdfsOptions patient = cluster_->options();
  patient.retry_for = seconds(120);
  const auto fs = cluster_->connect(patient);
  Thread restart({.name = "restart", .core = {}}, [this] { cluster_->control("start-namenode"); });
  EXPECT_EQ(contents(*fs, url("/kill/name")), "text");
}

}  // namespace
}  // namespace starling
