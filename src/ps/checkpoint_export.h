// Keys and weights of a cut as text, CSV or NumPy files.
//
// Rows come bucket by bucket, ascending by key in each, so that equal cuts give equal files. Uses:
// base, store, table. Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "ps/manifest.h"
#include "store/file_system.h"

namespace starling {

enum class ExportFormat {
  kText,   // NAME.txt: key, then the weights, a space between
  kCsv,    // NAME.csv: the same with commas, and a line of names first
  kNumpy,  // NAME.keys.npy: uint64 (n), NAME.weights.npy: float32 (n, dim)
};

// InvalidArgument: no such format; the message lists them.
StatusOr<ExportFormat> export_format(const std::string& name);

struct Exported {
  std::string name;
  uint64_t rows = 0;
  std::vector<std::string> files;
};

// Writes tables and variables (of these one row per element) into `directory`. `names` empty: all.
// `range_bytes` is the memory it may take, about. NotFound: a name that the cut has not. DataLoss:
// a damaged file.
StatusOr<std::vector<Exported>> export_cut(FileSystem& fs, const Cut& cut,
                                           const std::vector<std::string>& names,
                                           ExportFormat format, const std::string& directory,
                                           uint64_t range_bytes = uint64_t{256} << 20);

// The values of every variable of a cut, whole. DataLoss: a damaged file, or a part is missing.
StatusOr<std::map<std::string, std::vector<float>>> dense_values(FileSystem& fs, const Cut& cut);

}  // namespace starling
