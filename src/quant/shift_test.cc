#include "quant/shift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "simd/test_support.h"

namespace neve::quant {
namespace {

using Random = std::mt19937_64;

int narrow4(int q, const simd::NarrowRule& rule) {
  return std::min((rule.multiply * (q + rule.add)) >> rule.shift, 15);
}

int narrow2(int q, const simd::NarrowRule& rule) {
  return (q >= rule.threshold[0]) + (q >= rule.threshold[1]) + (q >= rule.threshold[2]);
}

// Nearest integer of a / b for integers; the tests assert that there are no ties.
int nearest(int a, int b) {
  EXPECT_NE(2 * (a % b), b) << a << " / " << b;
  return (2 * a + b) / (2 * b);
}

TEST(Shift, Equivalent8To4IsDequantiseAndRequantise) {
  const simd::NarrowRule rule = narrow_rule(Shift::kEquivalent, 1.f);
  for (int q = 0; q < 256; ++q) {
    EXPECT_EQ(narrow4(q, rule), nearest(q, 17));
    EXPECT_EQ(narrow4(q, rule), (241 * (q + 8)) >> 12);  // PM-KVQ app. D with b = 4
  }
}

TEST(Shift, Equivalent4To2IsDequantiseAndRequantise) {
  const simd::NarrowRule rule = narrow_rule(Shift::kEquivalent, 1.f);
  for (int q = 0; q < 16; ++q) {
    EXPECT_EQ(narrow2(q, rule), nearest(q, 5));
    EXPECT_EQ(narrow2(q, rule), (13 * (q + 2)) >> 6);  // app. D with b = 2
  }
}

TEST(Shift, Equivalent8To4To2IsOneRounding) {
  const simd::NarrowRule rule = narrow_rule(Shift::kEquivalent, 1.f);
  for (int q = 0; q < 256; ++q) EXPECT_EQ(narrow2(narrow4(q, rule), rule), nearest(q, 85));
}

// The codes of an f32 at a stored scale times 1, 17 or 85.
int direct_code(float x, float min, float scale, int most) {
  return static_cast<int>(std::clamp(std::nearbyint((x - min) / scale), 0.f, static_cast<float>(most)));
}

// Codes made at 8 bits and shifted are the codes of one rounding on the wider grid, for scales as f16 stores them.
TEST(Shift, ShiftedEqualsDirectForStoredScales) {
  const simd::NarrowRule rule = narrow_rule(Shift::kEquivalent, 1.f);
  Random random(3);
  std::normal_distribution<float> normal;
  for (int group = 0; group < 20000; ++group) {
    const float size = std::exp2(std::uniform_real_distribution<float>(-12.f, 12.f)(random));
    std::vector<float> x(64);
    for (float& value : x) {
      value = normal(random) * size;
      if (group % 2 == 0) value = f32_from_f16(f16_from_f32(value));
    }
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const Grid grid = make_grid(*low, *high);
    const float scale = f32_from_f16(grid.scale), min = f32_from_f16(grid.min);
    if (scale == 0.f) continue;
    for (const float value : x) {
      const int q8 = direct_code(value, min, scale, 255), q4 = narrow4(q8, rule), q2 = narrow2(q4, rule);
      ASSERT_EQ(q4, direct_code(value, min, scale * 17.f, 15)) << value << " min " << min << " scale " << scale;
      ASSERT_EQ(q2, direct_code(value, min, scale * 85.f, 3)) << value << " min " << min << " scale " << scale;
    }
  }
}

// The hard cases: numbers exactly between two 8-bit codes, and their neighbours, for every mantissa of a scale.
TEST(Shift, ShiftedEqualsDirectAtTies) {
  const simd::NarrowRule rule = narrow_rule(Shift::kEquivalent, 1.f);
  for (int mantissa = 0; mantissa < 1024; ++mantissa) {
    const float scale = f32_from_f16(static_cast<std::uint16_t>(0x2c00 | mantissa));
    for (int k = 0; k < 255; ++k) {
      const float tie = scale * (static_cast<float>(k) + 0.5f);
      for (const float x : {std::nextafter(tie, 0.f), tie, std::nextafter(tie, 1e9f)}) {
        const int q4 = narrow4(direct_code(x, 0.f, scale, 255), rule);
        ASSERT_EQ(q4, direct_code(x, 0.f, scale * 17.f, 15)) << x << " scale " << scale;
        ASSERT_EQ(narrow2(q4, rule), direct_code(x, 0.f, scale * 85.f, 3)) << x << " scale " << scale;
      }
    }
  }
}

TEST(Shift, DirectAndModifiedAreThePapers) {
  const simd::NarrowRule direct = narrow_rule(Shift::kDirect, 1.f), modified = narrow_rule(Shift::kModified, 1.f);
  for (int q = 0; q < 256; ++q) {
    EXPECT_EQ(narrow4(q, direct), q >> 4);
    EXPECT_EQ(narrow4(q, modified), std::min((q + 8) >> 4, 15));
  }
  for (int q = 0; q < 16; ++q) {
    EXPECT_EQ(narrow2(q, direct), q >> 2);
    EXPECT_EQ(narrow2(q, modified), std::min((q + 2) >> 2, 3));
  }
}

// Clipped: the level that is nearest, levels at 7.5 +- 0.5 * step and +- 1.5 * step, step = 5c.
TEST(Shift, ClippedTakesTheNearestLevel) {
  for (int percent = 50; percent <= 100; ++percent) {
    const float clip = static_cast<float>(percent) / 100.f;
    const simd::NarrowRule rule = narrow_rule(Shift::kClipped, clip);
    const double step = 5.0 * percent / 100.0;
    const double levels[4] = {7.5 - 1.5 * step, 7.5 - 0.5 * step, 7.5 + 0.5 * step, 7.5 + 1.5 * step};
    for (int q = 0; q < 16; ++q) {
      const double here = std::fabs(q - levels[narrow2(q, rule)]);
      for (const double level : levels) EXPECT_LE(here, std::fabs(q - level) + 1e-5) << "c " << clip << ", code " << q;
    }
    for (int q = 0; q < 256; ++q) EXPECT_EQ(narrow4(q, rule), nearest(q, 17)) << "8 -> 4 is equivalent";
  }
}

TEST(Shift, ClippedWithOneIsEquivalent) {
  const simd::NarrowRule clipped = narrow_rule(Shift::kClipped, 1.f), equal = narrow_rule(Shift::kEquivalent, 1.f);
  for (int q = 0; q < 16; ++q) EXPECT_EQ(narrow2(q, clipped), narrow2(q, equal));
}

// number = min + 127.5 s + multiple s (code - center), against each rule's own formula with min = 0 and s = 1.
TEST(Shift, NumbersOfCodes) {
  const auto number = [](const Width& w, int code) {
    return 127.5 + static_cast<double>(w.multiple) * (code - static_cast<double>(w.center));
  };
  for (int code = 0; code < 256; ++code) {
    for (const Shift shift : {Shift::kEquivalent, Shift::kDirect, Shift::kModified, Shift::kClipped}) {
      EXPECT_EQ(number(shifted_width(8, shift, 0.8f), code), code);
    }
  }
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(number(shifted_width(4, Shift::kEquivalent, 1.f), code), 17 * code);
    EXPECT_EQ(number(shifted_width(4, Shift::kClipped, 0.8f), code), 17 * code);
    EXPECT_EQ(number(shifted_width(4, Shift::kDirect, 1.f), code), 16 * code);
    EXPECT_EQ(number(shifted_width(4, Shift::kModified, 1.f), code), 16 * code);
  }
  for (int code = 0; code < 4; ++code) {
    EXPECT_EQ(number(shifted_width(2, Shift::kEquivalent, 0.8f), code), 85 * code);
    EXPECT_EQ(number(shifted_width(2, Shift::kDirect, 1.f), code), 64 * code);
    EXPECT_EQ(number(shifted_width(2, Shift::kModified, 1.f), code), 64 * code);
    EXPECT_NEAR(number(shifted_width(2, Shift::kClipped, 0.8f), code), 127.5 * 0.2 + 85 * 0.8 * code, 1e-4);
  }
}

// The equivalent shift never increases the error by more than half a step of the new grid; the two worse ones do, and
// are biased. What the paper's ablation is about.
TEST(Shift, TheWorseShiftsAreWorse) {
  const auto error = [](Shift shift) {
    const simd::NarrowRule rule = narrow_rule(shift, 1.f);
    const Width width = shifted_width(4, shift, 1.f);
    double sum = 0;
    for (int q = 0; q < 256; ++q) {
      const double back =
          127.5 + static_cast<double>(width.multiple) * (narrow4(q, rule) - static_cast<double>(width.center));
      sum += (back - q) * (back - q);
    }
    return sum / 256;
  };
  EXPECT_NEAR(error(Shift::kEquivalent), 24.0, 1.0);  // (17^2 - 1) / 12
  EXPECT_GT(error(Shift::kModified), error(Shift::kEquivalent));
  EXPECT_GT(error(Shift::kDirect), 3 * error(Shift::kModified));
}

// The kernels pack what the rule says, for all pairs of codes that share a byte, on every instruction set.
TEST(Shift, KernelsFollowTheRules) {
  for (const simd::Kernels* kernels : simd::running_kernels()) {
    for (const Shift shift : {Shift::kEquivalent, Shift::kDirect, Shift::kModified, Shift::kClipped}) {
      const simd::NarrowRule rule = narrow_rule(shift, 0.8f);
      constexpr std::size_t kPairs = 65536;
      std::vector<std::uint8_t> wide(2 * kPairs), nibbles(kPairs), crumbs(kPairs / 2);
      for (std::size_t i = 0; i < kPairs; ++i) {
        wide[i] = static_cast<std::uint8_t>(i);
        wide[kPairs + i] = static_cast<std::uint8_t>(i >> 8);
      }
      kernels->coding->narrow_8_to_4(wide.data(), kPairs, rule, nibbles.data());
      for (std::size_t i = 0; i < kPairs; ++i) {
        ASSERT_EQ(nibbles[i], narrow4(wide[i], rule) | narrow4(wide[kPairs + i], rule) << 4) << kernels->name;
      }
      // All pairs of bytes: a is counted fast, b slowly.
      std::vector<std::uint8_t> two(2 * kPairs), out(kPairs);
      for (std::size_t i = 0; i < kPairs; ++i) {
        two[i] = static_cast<std::uint8_t>(i);
        two[kPairs + i] = static_cast<std::uint8_t>(i >> 8);
      }
      kernels->coding->narrow_4_to_2(two.data(), kPairs, rule, out.data());
      for (std::size_t i = 0; i < kPairs; ++i) {
        const int a = two[i], b = two[kPairs + i];
        const int want = narrow2(a & 15, rule) | narrow2(b & 15, rule) << 2 | narrow2(a >> 4, rule) << 4 |
                         narrow2(b >> 4, rule) << 6;
        ASSERT_EQ(out[i], want) << kernels->name << ": " << a << ", " << b;
      }
    }
  }
}

}  // namespace
}  // namespace neve::quant
