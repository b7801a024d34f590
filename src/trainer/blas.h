// What library multiplies this process's matrices, and whether it knows the CPU. A reference BLAS,
// or an OpenBLAS that is older than the CPU and falls back to its oldest kernels, costs a factor of
// five.
//
// Uses: base. Threads: free functions, before the first thread is started.
#pragma once

#include <string>

#include "base/status.h"

namespace starling {

struct BlasFacts {
  enum class Library { kOpenBlas, kMkl, kBlis, kUnknown };
  Library library = Library::kUnknown;
  std::string core;  // of OpenBLAS: the kernels it has chosen
  bool has_avx2 = false;
  bool has_avx512 = false;
  std::string version;  // of OpenBLAS
  int threads = 0;      // of each product; 0: not known
};

struct BlasVerdict {
  bool is_slow = false;
  std::string text;       // what was found and, when it is slow, what to do
  std::string core_type;  // OPENBLAS_CORETYPE that would mend it; empty: nothing would
};

// Of the libraries that are loaded.
BlasFacts blas_facts();
BlasVerdict judge_blas(const BlasFacts& facts);
// For a person: "OpenBLAS 0.3.21, SkylakeX kernels, one thread per worker".
std::string blas_text(const BlasFacts& facts);

// FailedPrecondition: matrix products would be slow and `allow_slow` is not given; the message says
// what to set or to install. OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, so whoever starts
// this program sets it (src/bin/beside.cc).
Status check_blas(bool allow_slow);

}  // namespace starling
