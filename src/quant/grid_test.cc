#include "quant/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"

namespace neve::quant {
namespace {

using Random = std::mt19937_64;

// All finite f16 numbers by their definition, rising.
const std::vector<double>& staircase() {
  static const std::vector<double> steps = [] {
    std::vector<double> list;
    for (int bits = 0; bits < 0x7c00; ++bits) {
      const int exponent = bits >> 10, fraction = bits & 1023;
      const double x = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      list.push_back(x);
      if (x != 0) list.push_back(-x);
    }
    std::sort(list.begin(), list.end());
    return list;
  }();
  return steps;
}

double floor16(double x) {
  const auto above = std::upper_bound(staircase().begin(), staircase().end(), x);
  return above == staircase().begin() ? -std::numeric_limits<double>::infinity() : *(above - 1);
}

double ceil16(double x) {
  const auto at = std::lower_bound(staircase().begin(), staircase().end(), x);
  return at == staircase().end() ? std::numeric_limits<double>::infinity() : *at;
}

double number(std::uint16_t half) { return static_cast<double>(f32_from_f16(half)); }

void expect_rounds(float x) {
  ASSERT_EQ(number(f16_round_down(x)), floor16(static_cast<double>(x))) << x;
  ASSERT_EQ(number(f16_round_up(x)), ceil16(static_cast<double>(x))) << x;
}

TEST(Grid, RoundsEveryHalfToItselfAndItsNeighboursOutward) {
  for (const double step : staircase()) {
    const auto x = static_cast<float>(step);
    expect_rounds(x);
    expect_rounds(std::nextafter(x, 1e9f));
    expect_rounds(std::nextafter(x, -1e9f));
  }
}

TEST(Grid, RoundsRandomNumbersOfAllSizes) {
  Random random(1);
  for (int i = 0; i < 300000;) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    expect_rounds(x);
    ++i;
  }
}

struct Range {
  float low, high;
};

// What the quantiser does with one number, in f32 as it is specified.
float code_of(float x, const Grid& grid) {
  const float scale = f32_from_f16(grid.scale);
  return scale > 0.f ? std::nearbyint((x - f32_from_f16(grid.min)) / scale) : 0.f;
}

void expect_good_grid(Range r) {
  const Grid grid = make_grid(r.low, r.high);
  ASSERT_EQ(number(grid.min), floor16(static_cast<double>(r.low))) << r.low << " .. " << r.high;
  // The range above the stored minimum, as f32 knows it.
  const float range = r.high - f32_from_f16(grid.min);
  const double exact = static_cast<double>(range / 255.f);
  ASSERT_EQ(number(grid.scale), range > 0.f ? ceil16(exact) : 0.0) << r.low << " .. " << r.high;
  for (const float x : {r.low, r.high, r.low / 2 + r.high / 2}) {
    const float code = code_of(x, grid);
    ASSERT_GE(code, 0.f) << x << " in " << r.low << " .. " << r.high;
    ASSERT_LE(code, 255.f) << x << " in " << r.low << " .. " << r.high;
    const double back = number(grid.min) + static_cast<double>(code) * number(grid.scale);
    const double largest = std::max(std::fabs(static_cast<double>(r.low)), std::fabs(static_cast<double>(r.high)));
    ASSERT_LE(std::fabs(back - static_cast<double>(x)), number(grid.scale) * 0.5 + largest * 1e-6) << x;
  }
}

TEST(Grid, UglyGroupsAreNeverClamped) {
  const float one_ulp = f32_from_f16(0x3c01), tiny = 1e-30f, step = 0x1p-24f, most = 65504.f;
  for (const Range r :
       {Range{0, 0},    {-0.f, 0.f},    {1, 1},         {-1, -1},       {tiny, tiny},       {-tiny, tiny},
        {-tiny, -tiny}, {0, tiny},      {1, one_ulp},   {-one_ulp, -1}, {0, step},          {-step, step},
        {-most, most},  {most, most},   {-most, -most}, {0, most},      {-most, 0},         {65472, most},
        {-1e-3f, 1e4f}, {-1e4f, 1e-3f}, {0.1f, 0.1f},   {-0.1f, -0.1f}, {3.14159f, 3.1416f}}) {
    expect_good_grid(r);
  }
}

TEST(Grid, RandomGroupsAreNeverClamped) {
  Random random(2);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 200000; ++i) {
    // Exact halves, as keys are, and any f32, as rotated values are.
    const float size = std::exp2(std::uniform_real_distribution<float>(-26.f, 13.f)(random));
    float a = normal(random) * size, b = normal(random) * size;
    if (i % 2 == 0) {
      a = f32_from_f16(f16_from_f32(a));
      b = f32_from_f16(f16_from_f32(b));
    }
    if (i % 3 == 0) b = a + (b - a) * 1e-3f;
    expect_good_grid({std::min(a, b), std::max(a, b)});
  }
}

TEST(Grid, ConstantHalvesAreExact) {
  for (const double step : staircase()) {
    const auto x = static_cast<float>(step);
    const Grid grid = make_grid(x, x);
    ASSERT_EQ(number(grid.scale), 0.0);
    ASSERT_EQ(number(grid.min), step);
  }
}

// Two neighbouring halves: the error is at most their distance, and both are exact where the distance has 255 parts.
TEST(Grid, OneUlpApart) {
  for (std::size_t i = 0; i + 1 < staircase().size(); ++i) {
    const double low = staircase()[i], high = staircase()[i + 1];
    const Grid grid = make_grid(static_cast<float>(low), static_cast<float>(high));
    for (const double x : {low, high}) {
      const double back =
          number(grid.min) + static_cast<double>(code_of(static_cast<float>(x), grid)) * number(grid.scale);
      ASSERT_LE(std::fabs(back - x), (high - low) / 2) << low << " .. " << high;
    }
  }
}

TEST(Grid, NumbersBeyondHalfGiveInfiniteGrids) {
  EXPECT_TRUE(std::isinf(number(make_grid(-70000.f, 1.f).min)));
  EXPECT_TRUE(std::isfinite(number(make_grid(70000.f, 70001.f).min)));
  EXPECT_TRUE(std::isinf(number(make_grid(0.f, 1.7e7f).scale)));
}

TEST(Grid, AllFiniteFindsOneBadNumberAnywhere) {
  for (const std::uint16_t bad : {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01}) {
    for (std::size_t n = 1; n < 70; ++n) {
      std::vector<std::uint16_t> x(n, 0x7bff);
      ASSERT_TRUE(all_finite(x.data(), n));
      for (std::size_t at = 0; at < n; ++at) {
        x[at] = bad;
        ASSERT_FALSE(all_finite(x.data(), n)) << bad << " at " << at << " of " << n;
        ASSERT_TRUE(all_finite(x.data(), at));
        x[at] = 0xfbff;
      }
    }
  }
}

// All widths of one grid share their middle, and their code ranges span the same numbers (without clipping).
TEST(Grid, WidthsShareMiddleAndEnds) {
  for (const int bits : {8, 4, 2}) {
    const Width width = width_of(bits, 1.f);
    const float most = static_cast<float>((1 << bits) - 1);
    EXPECT_EQ(width.center * 2, most);
    EXPECT_EQ(width.multiple * most, 255.f);
  }
  const Width clipped = width_of(2, 0.8f);
  // min + 127.5 s (1 - c) + 85 c s q, written from the middle.
  for (int q = 0; q < 4; ++q) {
    const double by_rule = 127.5 * (1 - 0.8) + 85 * 0.8 * q;
    const double here = 127.5 + static_cast<double>(clipped.multiple) * (q - static_cast<double>(clipped.center));
    EXPECT_NEAR(by_rule, here, 1e-4) << q;
  }
}

}  // namespace
}  // namespace neve::quant
