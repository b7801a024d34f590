// Any bytes as an append log: it opens, perhaps cut, and opens again the same, or it is refused and
// left as it was.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "store/append_log.h"
#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace {

constexpr const char* kUrl = "mem://x/log";

starling::StatusOr<uint64_t> count_records(starling::FileSystem& fs) {
  uint64_t records = 0;
  const auto log = starling::AppendLog::open(fs, kUrl, [&](auto) {
    ++records;
    return absl::OkStatus();
  });
  if (!log.ok()) return log.status();
  return records;
}

void check(std::span<const std::byte> input) {
  const std::string bytes(text_of(input));
  starling::MemoryFileSystem fs;
  STARLING_CHECK(starling::write_file(fs, kUrl, bytes).ok(), "memory takes any file");
  const auto first = count_records(fs);
  if (!first.ok()) {
    STARLING_CHECK(starling::contents(fs, kUrl) == bytes, "a refused log is left as it was");
    return;
  }
  const auto second = count_records(fs);
  STARLING_CHECK(second.ok() && *second == *first,
                 "a recovered log opens again with the same records");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  std::vector<std::string> seeds = {"", "STLLOG01"};
  starling::MemoryFileSystem fs;
  auto log = starling::AppendLog::open(fs, kUrl, [](auto) { return absl::OkStatus(); });
  for (int i = 0; i < 5; ++i) {
    (void)(*log)->append(
        starling::bytes_of(starling::random_bytes(static_cast<size_t>(1 + i * 20), 1)));
    if (i % 2 == 0) (void)(*log)->sync();
    seeds.push_back(starling::contents(fs, kUrl));
  }
  return {{"log", check, seeds}};
}
