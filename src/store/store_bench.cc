// One piece of work of the store per run, for bench/scenarios/store.py, which times it beside dd,
// curl, gzip and zstd.
//
//   store_bench write URL BYTES [--blocks] [--behind]   zeros in pieces of 1 MiB, published
//   store_bench read URL [--blocks] [--ahead] [--parallel N] [--range BYTES] [--shift BYTES]
//   store_bench decode URL                       gzip or zstd by the suffix, with read-ahead
//   store_bench text FILE BYTES                  lines as a log has them, for the decoders
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "store/block_stream.h"
#include "store/file_systems.h"
#include "store/pages.h"
#include "store/read_ahead.h"
#include "store/streams.h"
#include "store/write_behind.h"

namespace starling {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

struct Arguments {
  std::string work;
  std::string url;
  uint64_t bytes = 0;
  bool has_blocks = false;
  bool is_ahead = false;   // through a ReadAhead
  bool is_behind = false;  // through a WriteBehind
  uint32_t parallel = 0;   // the store's own choice when 0
  uint64_t range = 0;      // the same
  size_t shift = 0;        // how far into a page the caller's memory starts
};

Status write(FileSystem& fs, const Arguments& arguments) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer, fs.open_write(arguments.url));
  if (arguments.is_behind) {
    STARLING_ASSIGN_OR_RETURN(writer, WriteBehind::start(std::move(writer)));
  }
  if (arguments.has_blocks) {
    STARLING_ASSIGN_OR_RETURN(writer, write_blocks(std::move(writer)));
  }
  const std::vector<std::byte> piece(kPieceBytes);
  for (uint64_t left = arguments.bytes; left > 0;) {
    const size_t step = static_cast<size_t>(std::min<uint64_t>(left, piece.size()));
    STARLING_RETURN_IF_ERROR(writer->write(std::span(piece).first(step)));
    left -= step;
  }
  return writer->publish();
}

Status drain(Reader& reader, size_t shift = 0) {
  const PageBuffer piece = allocate_pages(kPieceBytes + shift);
  while (true) {
    STARLING_ASSIGN_OR_RETURN(const size_t got, reader.read({piece.get() + shift, kPieceBytes}));
    if (got == 0) return absl::OkStatus();
  }
}

Status read(FileSystem& fs, const Arguments& arguments) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, fs.open_read(arguments.url));
  if (arguments.is_ahead) {
    STARLING_ASSIGN_OR_RETURN(reader, ReadAhead::start(std::move(reader)));
  }
  if (arguments.has_blocks) reader = read_blocks(std::move(reader));
  return drain(*reader, arguments.shift);
}

Status decode(FileSystem& fs, const Arguments& arguments) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, fs.open_read(arguments.url));
  STARLING_ASSIGN_OR_RETURN(reader, ReadAhead::start(std::move(reader)));
  return drain(*decompress(std::move(reader), compression_of(arguments.url)));
}

Status make_text(FileSystem& fs, const Arguments& arguments) {
  STARLING_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer, fs.open_write(arguments.url));
  Rng rng(1, 2, 3);
  std::string piece;
  for (uint64_t written = 0; written < arguments.bytes; written += piece.size()) {
    piece.clear();
    while (piece.size() < kPieceBytes) {
      // Few values are frequent and many are rare, as in click logs.
      const uint64_t user = rng.below(uint64_t{1} << (4 + rng.below(20)));
      piece += fmt::format("{}\t{}\t{:08x}\t{}\n", rng.below(2), user, mix64(rng.below(5000)) >> 32,
                           rng.below(300));
    }
    STARLING_RETURN_IF_ERROR(writer->write(bytes_of(piece)));
  }
  return writer->publish();
}

StatusOr<Arguments> parse(const std::vector<std::string>& words) {
  Arguments arguments;
  if (words.size() < 2)
    return invalid_argument(
        "usage: store_bench write|read|decode|text URL [BYTES] [--blocks] [--parallel N]");
  arguments.work = words[0];
  arguments.url = words[1];
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "--blocks") {
      arguments.has_blocks = true;
    } else if (words[i] == "--ahead") {
      arguments.is_ahead = true;
    } else if (words[i] == "--behind") {
      arguments.is_behind = true;
    } else if (words[i] == "--parallel" && i + 1 < words.size()) {
      arguments.parallel = static_cast<uint32_t>(std::stoul(words[++i]));
    } else if (words[i] == "--range" && i + 1 < words.size()) {
      arguments.range = std::stoull(words[++i]);
    } else if (words[i] == "--shift" && i + 1 < words.size()) {
      arguments.shift = std::stoull(words[++i]);
    } else {
      arguments.bytes = std::stoull(words[i]);
    }
  }
  return arguments;
}

Status run(const std::vector<std::string>& words) {
  STARLING_ASSIGN_OR_RETURN(const Arguments arguments, parse(words));
  StoreOptions options;
  options.incarnation = Incarnation{1};
  if (arguments.parallel > 0) options.hdfs.parallel_ranges = arguments.parallel;
  if (arguments.range > 0) options.hdfs.range_bytes = arguments.range;
  const RealClock clock;
  const std::unique_ptr<FileSystems> fs = FileSystems::standard(options, clock);
  using Work = Status (*)(FileSystem&, const Arguments&);
  const std::map<std::string, Work> works = {
      {"write", &write}, {"read", &read}, {"decode", &decode}, {"text", &make_text}};
  const auto work = works.find(arguments.work);
  if (work == works.end()) return invalid_argument("unknown work '{}'", arguments.work);
  const TimePoint start = clock.now();
  STARLING_RETURN_IF_ERROR(work->second(*fs, arguments));
  fmt::print("{:.6f}\n", std::chrono::duration<double>(clock.now() - start).count());
  return absl::OkStatus();
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  const starling::Status status = starling::run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  fmt::print(stderr, "store_bench: {}\n", status.ToString());
  return 1;
}
