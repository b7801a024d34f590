#include "trainer/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

using testing::HasSubstr;
using Library = BlasFacts::Library;

TEST(Blas, KernelsOlderThanTheCpuAreNamedWithWhatMendsThem) {
  const BlasVerdict verdict = judge_blas(
      {.library = Library::kOpenBlas, .core = "Prescott", .has_avx2 = true, .has_avx512 = true});
  EXPECT_TRUE(verdict.is_slow);
  EXPECT_EQ(verdict.core_type, "SkylakeX");
  EXPECT_THAT(verdict.text, HasSubstr("Prescott"));
  EXPECT_THAT(verdict.text, HasSubstr("OPENBLAS_CORETYPE=SkylakeX"));
  EXPECT_EQ(
      judge_blas({.library = Library::kOpenBlas, .core = "Prescott", .has_avx2 = true}).core_type,
      "Haswell");
}

TEST(Blas, HalfOfTheSpeedIsMendedAndNotRefused) {
  const BlasVerdict verdict = judge_blas(
      {.library = Library::kOpenBlas, .core = "Zen", .has_avx2 = true, .has_avx512 = true});
  EXPECT_FALSE(verdict.is_slow);
  EXPECT_EQ(verdict.core_type, "SkylakeX");
}

TEST(Blas, WhatFitsTheCpuIsFine) {
  for (const BlasFacts& facts :
       {BlasFacts{Library::kOpenBlas, "SkylakeX", true, true},
        BlasFacts{Library::kOpenBlas, "Haswell", true, false},
        BlasFacts{Library::kOpenBlas, "Prescott", false, false}, BlasFacts{Library::kMkl}}) {
    const BlasVerdict verdict = judge_blas(facts);
    EXPECT_FALSE(verdict.is_slow);
    EXPECT_EQ(verdict.core_type, "");
  }
}

TEST(Blas, APersonIsToldLibraryKernelsAndThreads) {
  BlasFacts facts{Library::kOpenBlas, "SkylakeX", true, true, "0.3.21", 1};
  EXPECT_EQ(blas_text(facts), "OpenBLAS 0.3.21, SkylakeX kernels, one thread per worker");
  facts.threads = 2;
  EXPECT_THAT(blas_text(facts), HasSubstr("2 threads per worker"));
  EXPECT_EQ(blas_text({.library = Library::kMkl}), "MKL");
}

TEST(Blas, AReferenceLibraryCannotBeMended) {
  const BlasVerdict verdict = judge_blas({.library = Library::kUnknown, .has_avx2 = true});
  EXPECT_TRUE(verdict.is_slow);
  EXPECT_EQ(verdict.core_type, "");
  EXPECT_THAT(verdict.text, HasSubstr("libopenblas0"));
}

}  // namespace
}  // namespace starling
