#include "store/streams.h"

#include "store/gzip.h"
#include "store/zstd.h"

namespace starling {

Compression compression_of(std::string_view url) {
  if (url.ends_with(".gz")) return Compression::kGzip;
  if (url.ends_with(".zst")) return Compression::kZstd;
  return Compression::kNone;
}

std::unique_ptr<Reader> decompress(std::unique_ptr<Reader> source, Compression compression) {
  if (compression == Compression::kBySuffix) compression = compression_of(source->url());
  if (compression == Compression::kGzip) return std::make_unique<GzipReader>(std::move(source));
  if (compression == Compression::kZstd) return std::make_unique<ZstdReader>(std::move(source));
  return source;
}

StatusOr<std::unique_ptr<Writer>> compress(std::unique_ptr<Writer> target,
                                           const CompressionOptions& options) {
  const bool by_suffix = options.compression == Compression::kBySuffix;
  const Compression compression = by_suffix ? compression_of(target->url()) : options.compression;
  const int level_max = compression == Compression::kGzip ? 9 : 19;
  if (options.level < 0 || options.level > level_max) {
    return invalid_argument("{}: compression level is {}, allowed are 0 to {}", target->url(),
                            options.level, level_max);
  }
  if (compression == Compression::kGzip) {
    return std::unique_ptr<Writer>(std::make_unique<GzipWriter>(std::move(target), options.level));
  }
  if (compression == Compression::kZstd) {
    return std::unique_ptr<Writer>(std::make_unique<ZstdWriter>(std::move(target), options.level));
  }
  return target;
}

StatusOr<std::unique_ptr<Reader>> open_decompressed(FileSystem& fs, std::string_view url,
                                                    Compression compression) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Reader> source, fs.open_read(url));
  return decompress(std::move(source), compression);
}

StatusOr<std::unique_ptr<Writer>> open_compressed(FileSystem& fs, std::string_view url,
                                                  const CompressionOptions& options,
                                                  Existing existing) {
  STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Writer> target, fs.open_write(url, existing));
  return compress(std::move(target), options);
}

}  // namespace starling
