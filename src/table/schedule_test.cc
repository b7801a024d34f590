#include "table/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling {
namespace {

ScheduleOptions schedule(const std::string& kind, uint64_t warmup, uint64_t period, double factor,
                         double floor) {
  return {kind, warmup, period, factor, floor};
}

TEST(Schedule, ConstantStaysAtOne) {
  EXPECT_EQ(schedule_factor({}, 0), 1);
  EXPECT_EQ(schedule_factor({}, UINT64_MAX), 1);
}

TEST(Schedule, WarmUpRisesLinearlyThenTheCurveStarts) {
  const ScheduleOptions options = schedule("step", 4, 10, 0.5, 0);
  EXPECT_EQ(schedule_factor(options, 0), 0.25);
  EXPECT_EQ(schedule_factor(options, 3), 1);
  EXPECT_EQ(schedule_factor(options, 13), 1);
  EXPECT_EQ(schedule_factor(options, 14), 0.5);
  EXPECT_EQ(schedule_factor(options, 24), 0.25);
}

TEST(Schedule, ExponentialFallsSmoothly) {
  const ScheduleOptions options = schedule("exponential", 0, 10, 0.25, 0);
  EXPECT_DOUBLE_EQ(schedule_factor(options, 5), 0.5);
  EXPECT_DOUBLE_EQ(schedule_factor(options, 10), 0.25);
}

TEST(Schedule, CosineEndsAtItsFloor) {
  const ScheduleOptions options = schedule("cosine", 0, 100, 1, 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(options, 0), 1);
  EXPECT_NEAR(schedule_factor(options, 50), 0.55, 1e-12);
  EXPECT_EQ(schedule_factor(options, 100), 0.1);
  EXPECT_EQ(schedule_factor(options, 1000), 0.1);
}

TEST(Schedule, BadOptionsAreRefusedByName) {
  const auto refused = [](const ScheduleOptions& options, const std::string& part) {
    const Status status = check_schedule(options, "schedule");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(message_of(status).find(part), std::string_view::npos) << status;
  };
  refused(schedule("cosinus", 0, 1, 1, 0), "cosinus");
  refused(schedule("step", 0, 0, 1, 0), "period_steps");
  refused(schedule("step", 0, 1, 0, 0), "factor");
  refused(schedule("step", 0, 1, NAN, 0), "factor");
  refused(schedule("cosine", 0, 1, 1, -1), "floor");
}

}  // namespace
}  // namespace starling
