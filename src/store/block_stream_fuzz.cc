// Any bytes as a block stream: an error or the bytes that were written, never more, never a crash.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "store/block_stream.h"
#include "store/memory/file_system.h"
#include "store/test_tools.h"

namespace {

void check(std::span<const std::byte> input) {
  const std::string bytes(text_of(input));
  const auto reader = starling::read_blocks(std::make_unique<starling::StringReader>(bytes, 100));
  const auto text = starling::read_all(*reader, 1 << 20);
  STARLING_CHECK(!text.ok() || text->size() < bytes.size(),
                 "a stream is larger than what it holds");
  STARLING_CHECK(text.ok() || text.status().code() == starling::StatusCode::kDataLoss,
                 "damage is DataLoss");
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  std::vector<std::string> seeds;
  for (const size_t bytes : {0, 1, 63, 64, 200, 1000}) {
    starling::MemoryFileSystem fs;
    auto writer =
        starling::write_blocks(*fs.open_write("mem://x/f", starling::Existing::kReplace), 64);
    (void)(*writer)->write(starling::bytes_of(starling::random_bytes(bytes, 1)));
    (void)(*writer)->publish();
    seeds.push_back(starling::contents(fs, "mem://x/f"));
  }
  return {{"blocks", check, seeds}};
}
