#include "neve/step_times.h"

#include <gtest/gtest.h>

namespace neve {
namespace {

TEST(StepRatios, CompareAStepWithItsNeighboursAndNotWithTheRun) {
  // Steps get slower as the cache grows; every 100th closes a page and takes half as long again.
  std::vector<GenerateReport::Step> steps;
  for (int i = 0; i < 1000; ++i) {
    const bool closes = i % 100 == 99;
    steps.push_back({(10.f + 0.01f * static_cast<float>(i)) * (closes ? 1.5f : 1.f), closes});
  }
  const StepRatios ratios = step_ratios(steps);
  EXPECT_NEAR(ratios.closing_median, 1.5, 0.02);
  EXPECT_NEAR(ratios.median, 1.0, 0.01);
  EXPECT_NEAR(ratios.p999, 1.5, 0.05);
  EXPECT_GE(ratios.largest, ratios.p999);
}

TEST(StepRatios, KnowNothingOfTooFewSteps) {
  EXPECT_EQ(step_ratios({}).median, 0);
  const std::vector<GenerateReport::Step> one = {{5.f, true}};
  EXPECT_EQ(step_ratios(one).closing_median, 0);
  const std::vector<GenerateReport::Step> two = {{5.f, false}, {15.f, false}};
  EXPECT_EQ(step_ratios(two).closing_median, 0) << "none closed a page";
  EXPECT_EQ(step_ratios(two).largest, 1.5);
}

}  // namespace
}  // namespace neve
