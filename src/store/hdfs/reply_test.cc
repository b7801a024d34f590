#include "store/hdfs/reply.h"

#include <gmock/gmock.h>

#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string exception(const std::string& name, const std::string& message) {
  return fmt::format(R"({{"RemoteException":{{"exception":"{}","message":"{}"}}}})", name, message);
}

TEST(HdfsReply, ExceptionsGetTheCodeThatFits) {
  EXPECT_CODE(remote_error(404, exception("FileNotFoundException", "x")), kNotFound);
  EXPECT_CODE(remote_error(403, exception("AccessControlException", "Permission denied")),
              kPermissionDenied);
  EXPECT_CODE(remote_error(403, exception("AccessControlException", "/a (is not a directory)")),
              kNotFound);
  EXPECT_CODE(remote_error(403, exception("DSQuotaExceededException", "x")), kResourceExhausted);
  EXPECT_CODE(
      remote_error(403, exception("IOException",
                                  "could only be written to 0 of the 1 minReplication nodes. There "
                                  "are 2 datanode(s) running and no node(s) are excluded")),
      kResourceExhausted);
  EXPECT_CODE(remote_error(403, exception("IOException",
                                          "could only be written to 0 of the 1 minReplication "
                                          "nodes. There are 0 datanode(s) running")),
              kUnavailable);
  EXPECT_CODE(remote_error(401, "<html>"), kUnauthenticated);
  EXPECT_CODE(remote_error(500, "<html>"), kUnavailable);
}

TEST(HdfsReply, OnlyTheFirstLineOfAMessageIsShown) {
  const Status status = remote_error(
      403,
      exception("AccessControlException", R"(Permission denied: user=a\n\tat org.apache.Foo)"));
  EXPECT_THAT(test_status(status),
              AllOf(HasSubstr("Permission denied: user=a"), Not(HasSubstr("org.apache"))));
}

TEST(HdfsReply, NamesThatLeaveTheirDirectoryAreRefused) {
  for (const char* name : {"..", ".", "a/b"}) {
    const std::string body = fmt::format(
        R"({{"DirectoryListing":{{"partialListing":{{"FileStatuses":{{"FileStatus":[{{"length":1,"modificationTime":1,"type":"FILE","pathSuffix":"{}"}}]}}}},"remainingEntries":0}}}})",
        name);
    EXPECT_CODE(parse_listing(body), kUnavailable) << name;
  }
}

TEST(HdfsReply, ADataNodeIsFoundByItsWebAddress) {
  const std::string body =
      R"({"beans":[{"LiveNodes":"{\"n1:9866\":{\"infoAddr\":\"10.0.0.1:9864\",\"infoSecureAddr\":\"10.0.0.1:9865\",\"xferaddr\":\"10.0.0.1:9866\"},\"n2:9866\":{\"infoAddr\":\"10.0.0.2:9864\",\"xferaddr\":\"10.0.0.2:9866\"}}"}]})";
  EXPECT_EQ(parse_transfer_address(body, "10.0.0.2:9864"), "10.0.0.2:9866");
  EXPECT_EQ(parse_transfer_address(body, "n1:9864"), "10.0.0.1:9866");
  EXPECT_EQ(parse_transfer_address(body, "n1:9865"), "10.0.0.1:9866");
  EXPECT_EQ(parse_transfer_address(body, "n3:9864"), "");
  EXPECT_EQ(parse_transfer_address("garbage", "n1:9864"), "");
}

}  // namespace
}  // namespace starling
