// Any bytes as an answer of a name node: a value or an error, never a crash.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "store/hdfs/reply.h"

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"FileStatus":{"fileId":77,"length":5,"modificationTime":5,"pathSuffix":"","type":"FILE"}})",
      R"({"DirectoryListing":{"partialListing":{"FileStatuses":{"FileStatus":[{"length":1,"modificationTime":1,"type":"DIRECTORY","pathSuffix":"a"}]}},"remainingEntries":3}})",
      R"({"boolean":true})",
      R"({"RemoteException":{"exception":"IOException","javaClassName":"x","message":"a\n\tat b"}})",
      R"({"beans":[{"LiveNodes":"{\"n:1\":{\"infoAddr\":\"1.1.1.1:2\",\"xferaddr\":\"1.1.1.1:3\"}}"}]})",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  (void)starling::parse_file_status(body);
  const auto listing = starling::parse_listing(body);
  if (listing.ok()) {
    for (const auto& entry : listing->entries) {
      STARLING_CHECK(entry.name.find('/') == std::string::npos && entry.name != "..",
                     "a name stays in its directory");
    }
  }
  (void)starling::parse_boolean(body);
  (void)starling::parse_transfer_address(body, "1.1.1.1:2");
  STARLING_CHECK(!starling::remote_error(403, body).ok(), "an error is an error");
  return 0;
}
