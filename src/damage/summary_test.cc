#include "damage/summary.h"

#include <gtest/gtest.h>

namespace neve::damage {
namespace {

TEST(Summary, QuantilesAreNumpys) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.99), 3.97);
  EXPECT_EQ(quantile(values, 1), 4);
  EXPECT_EQ(quantile(std::vector<double>{7}, 0.3), 7);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

TEST(Summary, MeansOfRunsKeepTheRest) {
  const std::vector<double> values = {1, 3, 5, 7, 10};
  EXPECT_EQ(means_of_runs(values, 2), (std::vector<double>{2, 6, 10}));
  EXPECT_EQ(means_of_runs(values, 9), (std::vector<double>{5.2}));
  EXPECT_TRUE(means_of_runs({}, 4).empty());
  EXPECT_EQ(mean({}), 0);
}

}  // namespace
}  // namespace neve::damage
