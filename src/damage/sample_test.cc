#include "damage/sample.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace neve::damage {
namespace {

TEST(SampleToken, FollowsTheDistribution) {
  const std::array<float, 4> logits = {0.f, std::log(2.f), -1e9f, std::log(5.f)};  // shares 1/8, 2/8, 0, 5/8
  std::array<int, 4> counts = {};
  std::mt19937_64 random(1);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sample_token(logits, random))];
  const std::array<double, 4> shares = {1. / 8, 2. / 8, 0, 5. / 8};
  for (std::size_t token = 0; token < 4; ++token) {
    const double deviation = std::sqrt(kDraws * shares[token] * (1 - shares[token]));
    EXPECT_NEAR(counts[token], kDraws * shares[token], 4 * deviation) << token;
  }
}

TEST(SampleToken, IsTheSameForTheSameSeed) {
  const std::array<float, 3> logits = {0.1f, 0.2f, 0.3f};
  std::mt19937_64 one(7), other(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sample_token(logits, one), sample_token(logits, other));
}

}  // namespace
}  // namespace neve::damage
