#include "quant/key_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace neve::quant {
namespace {

using Random = std::mt19937_64;

std::vector<int> widths_of(const QuadWidths& w, int quads) {
  std::vector<int> list(static_cast<std::size_t>(quads), 0);
  for (int i = 0; i < quads; ++i) {
    list[static_cast<std::size_t>(i)] = i < w.at8 ? 8 : i < w.at8 + w.at4 ? 4 : i < w.at8 + w.at4 + w.at2 ? 2 : 0;
  }
  return list;
}

// Error of one quad of importance 1: uniform noise of a step of 1 / (2^bits - 1) of the range, in twelfths; without
// bits, the variance of a channel whose 128 numbers span 5.2 of its standard deviations.
double error_of(int bits) {
  if (bits == 0) return 12.0 / (5.2 * 5.2);
  const double steps = std::exp2(bits) - 1;
  return 1 / (steps * steps);
}

double error_of(const std::vector<int>& widths, const std::vector<float>& importance) {
  double sum = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) sum += static_cast<double>(importance[i]) * error_of(widths[i]);
  return sum;
}

// Least error over all assignments of widths to quads, contiguous or not.
double least_by_trying(const std::vector<float>& importance, int total, const std::vector<int>& ceiling) {
  const std::size_t quads = importance.size();
  std::vector<int> widths(quads);
  double least = std::numeric_limits<double>::infinity();
  std::size_t count = 1;
  for (std::size_t i = 0; i < quads; ++i) count *= 4;
  for (std::size_t code = 0; code < count; ++code) {
    int sum = 0;
    bool fits = true;
    for (std::size_t i = 0, left = code; i < quads; ++i, left /= 4) {
      constexpr int kWidths[4] = {0, 2, 4, 8};
      widths[i] = kWidths[left % 4];
      sum += widths[i];
      fits = fits && widths[i] <= ceiling[i];
    }
    if (fits && sum <= total) least = std::min(least, error_of(widths, importance));
  }
  return least;
}

std::vector<float> falling(std::size_t quads, Random& random) {
  std::vector<float> importance(quads);
  for (float& x : importance) x = std::exp(std::normal_distribution<float>(0.f, 2.f)(random));
  std::sort(importance.rbegin(), importance.rend());
  return importance;
}

TEST(KeyMap, WidthsEqualBruteForce) {
  Random random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t quads = 1 + random() % 6;
    const std::vector<float> importance = falling(quads, random);
    const int n = static_cast<int>(quads);
    const int total = static_cast<int>(random() % static_cast<unsigned>(8 * n + 3));
    const QuadWidths got = allocate_widths(importance, total, {n, 0, 0});
    const double least = least_by_trying(importance, total, std::vector<int>(quads, 8));
    EXPECT_NEAR(error_of(widths_of(got, n), importance), least, 0.02 * least) << n << " quads, " << total << " bits";
  }
}

TEST(KeyMap, WidthsUnderACeilingEqualBruteForce) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t quads = 1 + random() % 6;
    const std::vector<float> importance = falling(quads, random);
    const int n = static_cast<int>(quads);
    const QuadWidths ceiling = allocate_widths(importance, 4 * n, {n, 0, 0});
    const int total = 2 * static_cast<int>(random() % static_cast<unsigned>(2 * n + 1));
    const QuadWidths got = allocate_widths(importance, total, ceiling);
    const double least = least_by_trying(importance, total, widths_of(ceiling, n));
    EXPECT_NEAR(error_of(widths_of(got, n), importance), least, 0.02 * least) << n << " quads, " << total << " bits";
  }
}

TEST(KeyMap, SumsStayWithinTheRungAndFallFromRungToRung) {
  Random random(6);
  for (int trial = 0; trial < 500; ++trial) {
    const std::size_t quads = 1 + random() % 144;
    const int n = static_cast<int>(quads);
    const std::vector<float> importance = falling(quads, random);
    QuadWidths widths = {n, 0, 0};
    std::vector<int> before = widths_of(widths, n);
    for (const int bits : {8, 4, 2}) {
      widths = allocate_widths(importance, bits * n, widths);
      const std::vector<int> now = widths_of(widths, n);
      int sum = 0;
      for (std::size_t i = 0; i < quads; ++i) {
        sum += now[i];
        ASSERT_LE(now[i], before[i]) << "quad " << i << " at rung " << bits;
        ASSERT_LE(now[i], now[i == 0 ? 0 : i - 1]);
      }
      ASSERT_LE(sum, bits * n);
      ASSERT_GT(sum, bits * n - 2) << "the rung is used up";  // importance falls steeply: every bit helps
      before = now;
    }
  }
}

TEST(KeyMap, EqualImportanceIsUniform) {
  for (const int bits : {2, 4}) {
    for (const float each : {1.f, 1e-20f, 1e20f}) {
      const std::vector<float> importance(16, each);
      const QuadWidths got = allocate_widths(importance, 16 * bits, {16, 0, 0});
      EXPECT_EQ(got.at4, bits == 4 ? 16 : 0) << each;
      EXPECT_EQ(got.at2, bits == 2 ? 16 : 0) << each;
    }
  }
}

// A head whose first pages are constant, or that no query looked at, says nothing: no reason to waste its bits.
TEST(KeyMap, NoImportanceIsUniform) {
  const std::vector<float> importance(16, 0.f);
  const QuadWidths got = allocate_widths(importance, 16 * 4, {16, 0, 0});
  EXPECT_EQ(got.at4, 16);
}

TEST(KeyMap, OrderIsByFallingImportanceThenByChannel) {
  const std::vector<float> importance = {1, 5, 1, 7, 0, 5, 0, 9};
  EXPECT_EQ(order_channels(importance), (std::vector<std::uint16_t>{7, 3, 1, 5, 0, 2, 4, 6}));
  EXPECT_TRUE(order_channels({}).empty());
  Random random(7);
  std::vector<float> many(576);
  for (float& x : many) x = static_cast<float>(random() % 50);
  std::vector<std::uint16_t> order = order_channels(many);
  for (std::size_t i = 1; i < order.size(); ++i) {
    ASSERT_GE(many[order[i - 1]], many[order[i]]);
    ASSERT_TRUE(many[order[i - 1]] > many[order[i]] || order[i - 1] < order[i]);
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
}

}  // namespace
}  // namespace neve::quant
