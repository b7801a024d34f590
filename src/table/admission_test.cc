#include "table/admission.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace starling {
namespace {

std::unique_ptr<Admission> make(const AdmissionOptions& options) {
  auto made = make_admission(options, 1, 2, "admission");
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

AdmissionOptions kind(const std::string& name) {
  AdmissionOptions options;
  options.kind = name;
  return options;
}

AdmissionEvent push(uint64_t key, uint64_t step = 1, double score = 0) {
  return {Key{key}, 5, step, score};
}

TEST(Admission, AlwaysAdmits) { EXPECT_TRUE(make(kind("always"))->admit(push(1))); }

TEST(Admission, CountAdmitsAtTheNthPushAndForgets) {
  AdmissionOptions options = kind("count");
  options.count = 3;
  const auto admission = make(options);
  for (int life = 0; life < 2; ++life) {
    EXPECT_FALSE(admission->admit(push(1)));
    EXPECT_FALSE(admission->admit(push(1)));
    EXPECT_TRUE(admission->admit(push(1)));
  }
}

TEST(Admission, AFullBucketDropsTheOldestCandidate) {
  AdmissionOptions options = kind("count");
  options.candidates_max = 2 * kBuckets;
  const auto admission = make(options);
  EXPECT_FALSE(admission->admit(push(10, 1)));
  EXPECT_FALSE(admission->admit(push(20, 1)));
  EXPECT_FALSE(admission->admit(push(30, 2)));  // 10 has the smallest (step, key)
  EXPECT_TRUE(admission->admit(push(20, 3)));
  EXPECT_TRUE(admission->admit(push(30, 3)));
  EXPECT_FALSE(admission->admit(push(10, 3)));
}

TEST(Admission, ScoreAddsUpOverPushes) {
  AdmissionOptions options = kind("score");
  options.score = 1;
  const auto admission = make(options);
  EXPECT_FALSE(admission->admit(push(1, 1, 0.6)));
  EXPECT_TRUE(admission->admit(push(1, 1, 0.6)));
}

TEST(Admission, ProbabilityDrawsPerKeyAndStep) {
  AdmissionOptions options = kind("probability");
  options.probability = 0.25;
  const auto admission = make(options);
  int admitted = 0;
  for (uint64_t key = 0; key < 4000; ++key) {
    const bool first = admission->admit(push(key, 7));
    EXPECT_EQ(admission->admit(push(key, 7)), first) << "the same draw";
    admitted += first ? 1 : 0;
  }
  EXPECT_NEAR(admitted, 1000, 120);
}

TEST(Admission, BloomHoldsItsFalsePositiveRate) {
  AdmissionOptions options = kind("bloom");
  options.expected_keys = 1000 * kBuckets;
  options.false_positive_rate = 0.01;
  const auto admission = make(options);
  int early = 0;
  for (uint64_t key = 0; key < 1000; ++key) early += admission->admit(push(mix64(key))) ? 1 : 0;
  EXPECT_LE(early, 20) << "admitted at the first push";
  int second = 0;
  for (uint64_t key = 0; key < 500; ++key) second += admission->admit(push(mix64(key))) ? 1 : 0;
  EXPECT_GE(second, 480) << "admitted at the second push";
}

TEST(Admission, AKeyTheBloomFilterAdmittedStartsAsNew) {
  AdmissionOptions options = kind("bloom");
  options.expected_keys = 100 * kBuckets;
  options.count = 3;
  const auto admission = make(options);
  for (int life = 0; life < 3; ++life) {
    EXPECT_FALSE(admission->admit(push(9)));
    EXPECT_FALSE(admission->admit(push(9)));
    EXPECT_TRUE(admission->admit(push(9)));
  }
}

TEST(Admission, SavedStateContinuesInAnotherTable) {
  for (const char* name : {"count", "bloom", "score"}) {
    AdmissionOptions options = kind(name);
    options.expected_keys = 1 << 20;
    const auto from = make(options);
    EXPECT_FALSE(from->admit(push(1, 1, 0.6)));
    std::vector<std::byte> bytes;
    from->save(5, bytes);
    const auto to = make(options);
    ASSERT_TRUE(to->restore(5, bytes).ok());
    EXPECT_TRUE(to->admit(push(1, 1, 0.6))) << name;
    to->drop(5);
    EXPECT_FALSE(to->admit(push(1, 1, 0.6))) << name;
  }
}

TEST(Admission, ForeignBytesAreRefused) {
  const std::vector<std::byte> bytes(27);
  for (const char* name : {"always", "count", "bloom", "probability"}) {
    AdmissionOptions options = kind(name);
    options.expected_keys = 1 << 20;
    EXPECT_EQ(make(options)->restore(5, bytes).code(), StatusCode::kDataLoss) << name;
  }
  const std::vector<std::byte> twice(56);  // two candidates with the same key
  EXPECT_EQ(make(kind("count"))->restore(5, twice).code(), StatusCode::kDataLoss);
}

TEST(Admission, BadOptionsAreRefusedByName) {
  const auto refused = [](AdmissionOptions options, const std::string& part) {
    const auto made = make_admission(options, 1, 2, "admission");
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_NE(message_of(made.status()).find(part), std::string_view::npos) << made.status();
  };
  refused(kind("maybe"), "maybe");
  AdmissionOptions options = kind("count");
  options.count = 0;
  refused(options, "count");
  refused(kind("bloom"), "keys is 0");
  options = kind("bloom");
  options.expected_keys = 1;
  options.false_positive_rate = NAN;
  refused(options, "error_rate");
  // More counters than a uint32_t counts.
  options.expected_keys = uint64_t{1} << 40;
  options.false_positive_rate = 1e-9;
  refused(options, "counters");
  options = kind("count");
  options.candidates_max = 0;
  refused(options, "candidates_max");
  // Rounded up to whole buckets it would be 0 again.
  options.candidates_max = UINT64_MAX;
  refused(options, "candidates_max");
  options = kind("probability");
  options.probability = 1.5;
  refused(options, "probability");
  options = kind("score");
  options.score = 0;
  refused(options, "threshold is 0");
}

}  // namespace
}  // namespace starling
