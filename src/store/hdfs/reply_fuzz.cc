// Any bytes as an answer of a name node: a value or an error, never a crash.
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "store/hdfs/reply.h"

namespace {

void check_listing(std::span<const std::byte> bytes) {
  const auto listing = starling::parse_listing(text_of(bytes));
  if (!listing.ok()) return;
  for (const auto& entry : listing->entries) {
    STARLING_CHECK(entry.name.find('/') == std::string::npos && entry.name != "..",
                   "a name stays in its directory");
  }
}

void check_error(std::span<const std::byte> bytes) {
  STARLING_CHECK(!starling::remote_error(403, text_of(bytes)).ok(), "an error is an error");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {
      {"file_status",
       [](auto bytes) { (void)starling::parse_file_status(text_of(bytes)); },
       {R"({"FileStatus":{"fileId":77,"length":5,"modificationTime":5,"pathSuffix":"","type":"FILE"}})"}},
      {"listing",
       check_listing,
       {R"({"DirectoryListing":{"partialListing":{"FileStatuses":{"FileStatus":[{"length":1,"modificationTime":1,"type":"DIRECTORY","pathSuffix":"a"}]}},"remainingEntries":3}})"}},
      {"boolean",
       [](auto bytes) { (void)starling::parse_boolean(text_of(bytes)); },
       {R"({"boolean":true})", R"({"boolean":false})"}},
      {"under_construction",
       [](auto bytes) { (void)starling::parse_under_construction(text_of(bytes)); },
       {R"({"LocatedBlocks":{"fileLength":0,"isUnderConstruction":true,"locatedBlocks":[]}})"}},
      {"transfer_address",
       [](auto bytes) { (void)starling::parse_transfer_address(text_of(bytes), "1.1.1.1:2"); },
       {R"({"beans":[{"LiveNodes":"{\"n:1\":{\"infoAddr\":\"1.1.1.1:2\",\"xferaddr\":\"1.1.1.1:3\"}}"}]})"}},
      {"error",
       check_error,
       {R"({"RemoteException":{"exception":"IOException","javaClassName":"x","message":"a\n\tat b"}})"}},
  };
}
