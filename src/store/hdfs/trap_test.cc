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

class HdfsTrapTest : public HdfsTest {};

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
  const auto fs = cluster_->connect(options, cluster_->https_host());
  const Status status = fs->stat("hdfs://" + cluster_->https_host() + "/").status();
  EXPECT_CODE(status, kUnauthenticated);
  EXPECT_THAT(test_status(status), HasSubstr("certificate"));
}

TEST_F(HdfsTrapTest, TheLivingNameNodeOfAPairServes) {
  const DeadHost dead;
  const std::string pair = dead.host() + "," + cluster_->host();
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
  // The data node closes what it has got; there is nothing in it that tells it from a whole file.
  ASSERT_TRUE(eventually([&] {
    const auto left = fs_->list_directory(url("/client"));
    return left.ok() && left->size() == 1 && left->at(0).bytes > 0;
  }));
  const auto left = fs_->list_directory(url("/client"));
  EXPECT_OK(read_file(*fs_, left->at(0).url));
  EXPECT_EQ(incarnation_of_temporary(left->at(0).name()), Incarnation{0xdead});
  EXPECT_CODE(fs_->stat(url("/client/file")), kNotFound);
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

}  // namespace
}  // namespace starling
