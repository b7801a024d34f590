#include "bin/progress.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(RunProgress, SaysWhatIsKnownAndNoMore) {
  RunProgress now{.time_s = 10, .samples = 1000, .samples_per_s = 100};
  EXPECT_EQ(now.text(), "      1000 samples      100/s");
  now.loss = 0.5;
  now.auc = 0.75;
  now.part = 0.25;
  now.left_s = 95;
  EXPECT_EQ(now.text(),
            "      1000 samples      100/s  loss 0.5000  AUC 0.7500   25 %  1:35 min left");
}

TEST(RunProgress, ALineOfMetricsReadsBack) {
  const RunProgress now{.time_s = 1.5, .samples = 7, .samples_per_s = 3, .loss = 0.25, .part = 1};
  const std::optional<RunProgress> read = parse_progress(now.json());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->json(), now.json());
  EXPECT_EQ(read->text(), now.text());
  EXPECT_LT(read->auc, 0);
}

TEST(RunProgress, OtherLinesAreNone) {
  for (const char* line : {"", "{}", R"({"time_s": 1, "evaluation": {"auc": 0.7}})", "samples"}) {
    EXPECT_FALSE(parse_progress(line).has_value()) << line;
  }
  EXPECT_EQ(json_number(R"({"auc": 0.7})", "auc"), 0.7);
  EXPECT_FALSE(json_number(R"({"auc": null})", "auc").has_value());
}

}  // namespace
}  // namespace starling
