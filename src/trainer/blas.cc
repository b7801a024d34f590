#include "trainer/blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace starling {
namespace {

// Kernels of OpenBLAS that use AVX-512, and those that use AVX2.
constexpr std::array kAvx512Cores = {"SkylakeX", "Cooperlake", "Sapphirerapids"};
constexpr std::array kAvx2Cores = {"Haswell", "Zen", "Excavator"};

bool is_one_of(const auto& names, const std::string& core) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return core == name; });
}

bool is_loaded(const char* symbol) { return ::dlsym(RTLD_DEFAULT, symbol) != nullptr; }

// Of "OpenBLAS 0.3.21 DYNAMIC_ARCH ...": its version.
std::string second_word(const std::string& text) {
  const size_t begin = text.find(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find(' ', begin + 1) - begin - 1);
}

}  // namespace

BlasFacts blas_facts() {
  BlasFacts facts;
  facts.has_avx2 = __builtin_cpu_supports("avx2") != 0;
  facts.has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (void* core = ::dlsym(RTLD_DEFAULT, "openblas_get_corename"); core != nullptr) {
    facts.library = BlasFacts::Library::kOpenBlas;
    facts.core = reinterpret_cast<const char* (*)()>(core)();
    if (void* config = ::dlsym(RTLD_DEFAULT, "openblas_get_config"); config != nullptr) {
      facts.version = second_word(reinterpret_cast<const char* (*)()>(config)());
    }
    if (void* threads = ::dlsym(RTLD_DEFAULT, "openblas_get_num_threads"); threads != nullptr) {
      facts.threads = reinterpret_cast<int (*)()>(threads)();
    }
  } else if (is_loaded("mkl_get_version_string") || is_loaded("MKL_Get_Version_String")) {
    facts.library = BlasFacts::Library::kMkl;
  } else if (is_loaded("bli_info_get_version_str")) {
    facts.library = BlasFacts::Library::kBlis;
  }
  return facts;
}

BlasVerdict judge_blas(const BlasFacts& facts) {
  switch (facts.library) {
    case BlasFacts::Library::kMkl:
      return {.text = "MKL"};
    case BlasFacts::Library::kBlis:
      return {.text = "BLIS"};
    case BlasFacts::Library::kUnknown:
      return {.is_slow = true,
              .text =
                  "a reference BLAS, which is about five times slower than OpenBLAS: install "
                  "libopenblas0-pthread (Debian) and choose it by `update-alternatives --config "
                  "libblas.so.3-x86_64-linux-gnu`"};
    case BlasFacts::Library::kOpenBlas:
      break;
  }
  const bool is_best = is_one_of(kAvx512Cores, facts.core);
  const bool is_good = is_best || is_one_of(kAvx2Cores, facts.core);
  const std::string found = fmt::format("OpenBLAS with its {} kernels", facts.core);
  if ((facts.has_avx512 && !is_best) || (facts.has_avx2 && !is_good)) {
    const std::string wanted = facts.has_avx512 ? "SkylakeX" : "Haswell";
    // AVX2 kernels reach half of what the CPU can, which is no reason to refuse.
    return {.is_slow = !is_good,
            .text = fmt::format("{} on a CPU with {}: set OPENBLAS_CORETYPE={}, or install an "
                                "OpenBLAS that knows this CPU",
                                found, facts.has_avx512 ? "AVX-512" : "AVX2", wanted),
            .core_type = wanted};
  }
  return {.text = found};
}

std::string blas_text(const BlasFacts& facts) {
  std::string out;
  switch (facts.library) {
    case BlasFacts::Library::kMkl:
      out = "MKL";
      break;
    case BlasFacts::Library::kBlis:
      out = "BLIS";
      break;
    case BlasFacts::Library::kUnknown:
      out = "a reference BLAS";
      break;
    case BlasFacts::Library::kOpenBlas:
      out = fmt::format("OpenBLAS {}, {} kernels", facts.version, facts.core);
      break;
  }
  if (facts.threads == 1) return out + ", one thread per worker";
  return facts.threads == 0 ? out : fmt::format("{}, {} threads per worker", out, facts.threads);
}

Status check_blas(bool allow_slow) {
  const BlasVerdict verdict = judge_blas(blas_facts());
  if (!verdict.is_slow || allow_slow) return absl::OkStatus();
  return failed_precondition(
      "the network would run on {}. `--set trainer.slow_blas=true` trains all the same",
      verdict.text);
}

}  // namespace starling
