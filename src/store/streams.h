// gzip and zstd around readers and writers, chosen by the file's suffix or by name.
//
// Reading holds a window, never the file; concatenated gzip members and zstd frames read as one
// stream, as their command-line tools do. Uses: base, zlib, zstd. Threads: as Reader and Writer:
// one owner at a time.
#pragma once

#include <memory>
#include <string_view>

#include "store/file_system.h"

namespace starling {

enum class Compression {
  kBySuffix,  // .gz and .zst; anything else is plain
  kNone,
  kGzip,
  kZstd,
};

// kGzip for .gz, kZstd for .zst, else kNone.
Compression compression_of(std::string_view url);

struct CompressionOptions {
  Compression compression = Compression::kBySuffix;
  int level = 0;  // of the writer: 1 to 9 for gzip, 1 to 19 for zstd; 0 is the library's default
};

// The plain bytes of a compressed stream.
//
// DataLoss: damaged or cut short; the message gives the file and the offset in the compressed
// bytes. An empty file is cut short too. ResourceExhausted: a zstd frame wants a window above 128
// MiB, as with the command-line tool.
std::unique_ptr<Reader> decompress(std::unique_ptr<Reader> source, Compression compression);
// InvalidArgument: a level out of range.
StatusOr<std::unique_ptr<Writer>> compress(std::unique_ptr<Writer> target,
                                           const CompressionOptions& options);

// Opens a file and whatever its suffix or the option asks for around it.
StatusOr<std::unique_ptr<Reader>> open_decompressed(
    FileSystem& fs, std::string_view url, Compression compression = Compression::kBySuffix);
StatusOr<std::unique_ptr<Writer>> open_compressed(FileSystem& fs, std::string_view url,
                                                  const CompressionOptions& options = {},
                                                  Existing existing = Existing::kReplace);

}  // namespace starling
