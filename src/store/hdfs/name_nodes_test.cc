// How the hdfs maker treats name nodes and data nodes that answer oddly. No HDFS is needed for
// these.
#include "store/hdfs/name_nodes.h"

#include <gmock/gmock.h>

#include "store/file_systems.h"
#include "store/hdfs/fake_server.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Longer than any pause of a busy machine: what should succeed does.
HdfsOptions patient() {
  HdfsOptions options;
  options.retry_for = seconds(300);
  options.connect_timeout = seconds(300);
  options.call_timeout = seconds(300);
  options.stall_timeout = seconds(300);
  options.backoff_min = milliseconds(5);
  options.user = "me";
  return options;
}

// For what fails in the end, by the same code however many tries there were.
HdfsOptions impatient() {
  HdfsOptions options = patient();
  options.retry_for = milliseconds(300);
  options.stall_timeout = milliseconds(400);
  return options;
}

class NameNodesTest : public ::testing::Test {
 protected:
  std::unique_ptr<FileSystem> connect(const std::string& authority,
                                      const HdfsOptions& options = patient()) {
    auto fs = HdfsFileSystem::make(*parse_url("hdfs://" + authority + "/"), options, clock_);
    EXPECT_OK(fs);
    return fs.ok() ? *std::move(fs) : nullptr;
  }
  RealClock clock_;
};

std::string file_status(uint64_t bytes) {
  return fmt::format(
      R"({{"FileStatus":{{"fileId":77,"length":{},"modificationTime":5,"pathSuffix":"","type":"FILE"}}}})",
      bytes);
}

// A name node and data node in one: GETFILESTATUS tells a length, OPEN gives `body` as it stands.
FakeServer::Handler one_file(uint64_t bytes, std::string open_reply) {
  return [=](const std::string& head) {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(bytes));
    return open_reply;
  };
}

TEST_F(NameNodesTest, TheOtherNameNodeOfAPairIsAsked) {
  FakeServer active([](const std::string&) { return FakeServer::reply(200, file_status(7)); });
  const DeadHost dead;
  const std::string pair = dead.host() + "," + active.host();
  const auto fs = connect(pair);
  const auto info = fs->stat("hdfs://" + pair + "/x");
  ASSERT_OK(info);
  EXPECT_EQ(info->bytes, 7u);
  // The one that answered is asked first from now on.
  ASSERT_OK(fs->stat("hdfs://" + pair + "/x"));
  EXPECT_EQ(active.requests().size(), 2u);
}

TEST_F(NameNodesTest, AStandbyIsLeftForTheActiveOne) {
  FakeServer standby([](const std::string&) {
    return FakeServer::remote_exception(
        403, "StandbyException", "Operation category READ is not supported in state standby");
  });
  FakeServer active([](const std::string&) { return FakeServer::reply(200, file_status(7)); });
  HdfsOptions options = patient();
  options.name_services["cluster"] = {standby.host(), active.host()};
  const auto fs = connect("cluster", options);
  EXPECT_OK(fs->stat("hdfs://cluster/x"));
  EXPECT_OK(fs->stat("hdfs://cluster/x"));
  EXPECT_EQ(standby.requests().size(), 1u);
}

TEST_F(NameNodesTest, AReadGoesOnAtTheOtherNameNode) {
  FakeServer standby([](const std::string& head) {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(5));
    return FakeServer::remote_exception(403, "StandbyException", "not supported in state standby");
  });
  FakeServer active(one_file(5, FakeServer::reply(200, "hello")));
  const std::string pair = standby.host() + "," + active.host();
  const auto fs = connect(pair);
  EXPECT_EQ(contents(*fs, "hdfs://" + pair + "/x"), "hello");
}

TEST_F(NameNodesTest, WhenAllAreDownItIsUnavailableAndNamesThem) {
  const DeadHost one;
  const DeadHost other;
  const std::string pair = one.host() + "," + other.host();
  const Status status = connect(pair, impatient())->stat("hdfs://" + pair + "/x").status();
  EXPECT_CODE(status, kUnavailable);
  EXPECT_THAT(test_status(status),
              AllOf(HasSubstr("hdfs://" + pair + "/x: stat: 127.0.0.1:"), HasSubstr("tries")));
}

TEST_F(NameNodesTest, ASafeCallIsRepeatedUntilSomebodyAnswers) {
  std::atomic<int> calls{0};
  FakeServer server([&](const std::string&) {
    return ++calls < 4 ? FakeServer::remote_exception(403, "SafeModeException",
                                                      "Name node is in safe mode.")
                       : FakeServer::reply(200, file_status(7));
  });
  EXPECT_OK(connect(server.host())->stat("hdfs://" + server.host() + "/x"));
  EXPECT_EQ(calls, 4);
}

TEST_F(NameNodesTest, TheRpcPortGivesAnErrorThatNamesTheHttpPort) {
  FakeServer server([](const std::string&) {
    return FakeServer::reply(404,
                             "It looks like you are making an HTTP request to a Hadoop IPC port. "
                             "This is not the correct port");
  });
  const Status status = connect(server.host())->stat("hdfs://" + server.host() + "/x").status();
  EXPECT_CODE(status, kInvalidArgument);
  EXPECT_THAT(test_status(status), AllOf(HasSubstr("RPC port"), HasSubstr("9870")));
}

TEST_F(NameNodesTest, ADelegationTokenIsSentInsteadOfTheUser) {
  FakeServer server([](const std::string&) { return FakeServer::reply(200, file_status(7)); });
  HdfsOptions options = patient();
  options.delegation_token = "IAAEcm9vd/+=";
  ASSERT_OK(connect(server.host(), options)->stat("hdfs://" + server.host() + "/x"));
  EXPECT_THAT(server.requests().at(0),
              AllOf(HasSubstr("delegation=IAAEcm9vd%2F%2B%3D"), Not(HasSubstr("user.name"))));
}

TEST_F(NameNodesTest, TheTokenIsInNoMessage) {
  FakeServer server([](const std::string&) {
    return FakeServer::remote_exception(403, "InvalidToken", "expired");
  });
  HdfsOptions options = patient();
  options.delegation_token = "hush";
  const Status status =
      connect(server.host(), options)->stat("hdfs://" + server.host() + "/x").status();
  EXPECT_CODE(status, kUnauthenticated);
  EXPECT_THAT(test_status(status), AllOf(HasSubstr("expired"), Not(HasSubstr("hush"))));
}

TEST_F(NameNodesTest, ARenameWhoseAnswerWasLostIsRecognisedByItsInode) {
  std::atomic<int> renames{0};
  FakeServer server([&](const std::string& head) -> std::string {
    if (head.find("op=RENAME") == std::string::npos) return FakeServer::reply(200, file_status(7));
    // Carried out, but the answer never leaves; the second try finds no source.
    if (++renames == 1) return "";
    return FakeServer::remote_exception(404, "FileNotFoundException",
                                        "rename source /a is not found.");
  });
  const std::string root = "hdfs://" + server.host();
  EXPECT_OK(connect(server.host())->rename(root + "/a", root + "/b", Existing::kReplace));
  EXPECT_EQ(renames, 2);
}

TEST_F(NameNodesTest, ARemoveWhoseAnswerWasLostIsDone) {
  std::atomic<int> calls{0};
  FakeServer server([&](const std::string&) -> std::string {
    return ++calls == 1 ? "" : FakeServer::reply(200, R"({"boolean":false})");
  });
  EXPECT_OK(connect(server.host())->remove("hdfs://" + server.host() + "/a", Recursive::kNo));
}

TEST_F(NameNodesTest, ShortBodiesAreReadOnFromWhereTheyEnded) {
  std::atomic<int> opens{0};
  FakeServer server([&](const std::string& head) -> std::string {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(10));
    if (++opens == 1)
      return "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n0123";
    EXPECT_THAT(head, AllOf(HasSubstr("offset=4&length=6"), HasSubstr("/.reserved/.inodes/77")));
    return FakeServer::reply(200, "456789");
  });
  EXPECT_EQ(contents(*connect(server.host()), "hdfs://" + server.host() + "/x"), "0123456789");
}

TEST_F(NameNodesTest, ABodyThatStaysShortIsUnavailable) {
  FakeServer server(one_file(10, FakeServer::reply(200, "")));
  EXPECT_CODE(read_file(*connect(server.host(), impatient()), "hdfs://" + server.host() + "/x"),
              kUnavailable);
}

TEST_F(NameNodesTest, MoreThanAskedForIsDataLoss) {
  FakeServer server(one_file(3, FakeServer::reply(200, "012345")));
  EXPECT_CODE(read_file(*connect(server.host()), "hdfs://" + server.host() + "/x"), kDataLoss);
}

TEST_F(NameNodesTest, AFileReplacedWhileItIsReadIsAborted) {
  std::atomic<int> opens{0};
  FakeServer server([&](const std::string& head) -> std::string {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(10));
    if (++opens == 1)
      return "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n0123";
    return FakeServer::remote_exception(404, "FileNotFoundException",
                                        "File does not exist: /.reserved/.inodes/77");
  });
  EXPECT_CODE(read_file(*connect(server.host()), "hdfs://" + server.host() + "/x"), kAborted);
}

TEST_F(NameNodesTest, ARedirectToADeadNodeIsExcludedAndAskedAgain) {
  const DeadHost dead;
  FakeServer good([](const std::string&) { return FakeServer::reply(200, "hello"); });
  FakeServer names([&](const std::string& head) -> std::string {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(5));
    if (head.find("/jmx") != std::string::npos) {
      return FakeServer::reply(
          200,
          fmt::format(
              R"({{"beans":[{{"LiveNodes":"{{\"h:1\":{{\"infoAddr\":\"{}\",\"xferaddr\":\"127.0.0.1:9866\"}}}}"}}]}})",
              dead.host()));
    }
    const bool is_excluded = head.find("excludedatanodes=127.0.0.1%3A9866") != std::string::npos;
    return FakeServer::reply(307, "",
                             fmt::format("Location: http://{}/webhdfs/v1/x\r\n",
                                         is_excluded ? good.host() : dead.host()));
  });
  EXPECT_EQ(contents(*connect(names.host()), "hdfs://" + names.host() + "/x"), "hello");
}

TEST_F(NameNodesTest, TheNameNodeNeverGetsTheBody) {
  std::atomic<int> creates{0};
  FakeServer data([](const std::string&) { return FakeServer::reply(201, ""); });
  FakeServer names([&](const std::string& head) -> std::string {
    if (head.find("op=CREATE") != std::string::npos) {
      ++creates;
      EXPECT_THAT(head, AllOf(Not(HasSubstr("secret")), Not(HasSubstr("chunked"))));
      return FakeServer::reply(307, "",
                               fmt::format("Location: http://{}/webhdfs/v1/x\r\n", data.host()));
    }
    if (head.find("op=GETFILESTATUS") != std::string::npos && creates == 0) {
      return FakeServer::remote_exception(404, "FileNotFoundException", "no");
    }
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(3));
    return FakeServer::reply(200, R"({"boolean":true})");
  });
  // The length that HDFS reports is not what was written: this is not published.
  const Status status =
      write_file(*connect(names.host()), "hdfs://" + names.host() + "/x", "secret");
  EXPECT_CODE(status, kDataLoss);
  for (const std::string& request : names.requests())
    EXPECT_THAT(request, Not(HasSubstr("op=RENAME")));
}

TEST_F(NameNodesTest, AnAnswerOfAnotherShapeIsAnErrorThatShowsIt) {
  for (const char* body : {"", "{", "[]", "{\"FileStatus\":3}", "<html>proxy</html>",
                           "{\"FileStatus\":{\"length\":-1}}"}) {
    FakeServer server([&](const std::string&) { return FakeServer::reply(200, body); });
    EXPECT_CODE(connect(server.host())->stat("hdfs://" + server.host() + "/x"), kUnavailable)
        << body;
  }
}

TEST_F(NameNodesTest, ASilentServerIsLeftAtTheDeadline) {
  FakeServer server([](const std::string&) {
    std::this_thread::sleep_for(milliseconds(700));
    return std::string();
  });
  HdfsOptions options = impatient();
  options.call_timeout = milliseconds(100);
  EXPECT_CODE(connect(server.host(), options)->stat("hdfs://" + server.host() + "/x"),
              kUnavailable);
}

TEST_F(NameNodesTest, AnInterruptedReadIsCancelled) {
  std::atomic<bool> is_open{false};
  std::atomic<bool> may_end{false};
  FakeServer server([&](const std::string& head) -> std::string {
    if (head.find("op=GETFILESTATUS") != std::string::npos)
      return FakeServer::reply(200, file_status(10));
    is_open = true;
    while (!may_end) std::this_thread::sleep_for(milliseconds(1));
    return "";
  });
  const auto fs = connect(server.host());
  auto reader = fs->open_read("hdfs://" + server.host() + "/x", {});
  ASSERT_OK(reader);
  Thread other({.name = "interrupter", .core = {}}, [&] {
    while (!is_open) std::this_thread::sleep_for(milliseconds(1));
    (*reader)->interrupt();
  });
  EXPECT_CODE(read_all(**reader, 100), kCancelled);
  may_end = true;
}

TEST_F(NameNodesTest, WrongOptionsAreNamed) {
  HdfsOptions options = patient();
  options.parallel_ranges = 0;
  const auto url = parse_url("hdfs://host:1/");
  EXPECT_THAT(test_status(HdfsFileSystem::make(*url, options, clock_)),
              HasSubstr("parallel_ranges"));
  options = patient();
  options.retry_for = Duration::zero();
  EXPECT_CODE(HdfsFileSystem::make(*url, options, clock_), kInvalidArgument);
  EXPECT_CODE(HdfsFileSystem::make(*parse_url("hdfs:///path"), patient(), clock_),
              kInvalidArgument);
  EXPECT_CODE(HdfsFileSystem::make(*parse_url("hdfs://a:1,/path"), patient(), clock_), kOk);
  EXPECT_CODE(HdfsFileSystem::make(*parse_url("hdfs://a@b:1/path"), patient(), clock_),
              kInvalidArgument);
}

TEST_F(NameNodesTest, AppendingIsUnimplemented) {
  EXPECT_CODE(connect("host:1")->open_append("hdfs://host:1/log"), kUnimplemented);
}

}  // namespace
}  // namespace starling
