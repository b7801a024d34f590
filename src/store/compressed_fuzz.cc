// Any bytes as gzip or zstd: text, the same however the bytes come in, or an error.
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/fuzz.h"
#include "store/gzip.h"
#include "store/memory/file_system.h"
#include "store/test_tools.h"
#include "store/zstd.h"

namespace {

using namespace starling;  // NOLINT(google-build-using-namespace): a program of one file

constexpr uint64_t kTextMax = 1 << 20;

template <typename Decoder>
void check(std::span<const std::byte> input) {
  const std::string bytes(text_of(input));
  Decoder whole(std::make_unique<StringReader>(bytes));
  Decoder parts(std::make_unique<StringReader>(bytes, 7));
  const StatusOr<std::string> text = read_all(whole, kTextMax);
  const StatusOr<std::string> again = read_all(parts, kTextMax);
  // Not the other way round: libzstd takes a frame that ends before the size that it says for
  // damaged only where it sees the whole of it.
  STARLING_CHECK(!text.ok() || (again.ok() && *again == *text), "parts give the text of the whole");
  for (const Status& status : {text.status(), again.status()}) {
    STARLING_CHECK(status.ok() || status.code() == StatusCode::kDataLoss ||
                       status.code() == StatusCode::kResourceExhausted,
                   "damage is DataLoss, too much text or too large a window ResourceExhausted");
  }
}

template <typename Encoder>
std::string compressed(std::string_view text) {
  MemoryFileSystem fs;
  Encoder writer(*fs.open_write("mem://x/f", Existing::kReplace), /*level=*/0);
  STARLING_CHECK(writer.write(bytes_of(text)).ok() && writer.publish().ok(), "cannot write");
  return contents(fs, "mem://x/f");
}

// Nothing, noise that stays as it is, words that shrink, and two members or frames in a row.
template <typename Encoder>
std::vector<std::string> seeds() {
  const std::string words = "1 7:0.5 9:1 7:0.5 9:1\n0 7:0.25 12:1 7:0.5 9:1\n";
  const std::string shrunk = compressed<Encoder>(words);
  return {compressed<Encoder>(""), compressed<Encoder>(random_bytes(200, 1)), shrunk,
          shrunk + compressed<Encoder>("more"), shrunk + std::string(20, '\0')};
}

}  // namespace

std::vector<FuzzDecoder> fuzz_decoders() {
  return {{"gzip", check<GzipReader>, seeds<GzipWriter>()},
          {"zstd", check<ZstdReader>, seeds<ZstdWriter>()}};
}
