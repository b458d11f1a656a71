#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace neve {
namespace {

// The number of a pattern that is not NaN, by the formula of IEEE 754. Infinity counts as 65536: where the next step is.
double number_of(unsigned half) {
  const unsigned exponent = (half >> 10) & 31u, fraction = half & 1023u;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(Float16, EveryPatternToF32) {
  for (unsigned half = 0; half < 0x10000u; ++half) {
    const float got = f32_from_f16(static_cast<std::uint16_t>(half));
    ASSERT_EQ((half & 0x8000u) != 0, std::signbit(got)) << half;
    if ((half & 0x7c00u) != 0x7c00u) {
      ASSERT_EQ(number_of(half), got) << half;
    } else if ((half & 0x3ffu) == 0) {
      ASSERT_TRUE(std::isinf(got)) << half;
    } else {
      ASSERT_TRUE(std::isnan(got)) << half;
    }
  }
}

TEST(Float16, EveryPatternThereAndBack) {
  for (unsigned half = 0; half < 0x10000u; ++half) {
    const std::uint16_t back = f16_from_f32(f32_from_f16(static_cast<std::uint16_t>(half)));
    const bool is_nan = (half & 0x7c00u) == 0x7c00u && (half & 0x3ffu) != 0;
    ASSERT_EQ(is_nan ? half | 0x200u : half, back);  // a NaN becomes a quiet one and keeps its payload
  }
}

// Rounding is a staircase: it is right if it is right on both sides of every step, and there at the step itself.
TEST(Float16, EveryStepRoundsToNearestEven) {
  for (unsigned half = 0; half < 0x7c00u; ++half) {
    const double here = number_of(half), next = number_of(half + 1);
    const auto middle = static_cast<float>((here + next) / 2);
    ASSERT_EQ((here + next) / 2, middle) << "a middle is an f32";
    const unsigned even = half % 2 == 0 ? half : half + 1;
    const struct {
      float x;
      unsigned want;
    } cases[] = {{static_cast<float>(here), half},         {std::nextafter(static_cast<float>(here), 1e9f), half},
                 {std::nextafter(middle, 0.f), half},      {middle, even},
                 {std::nextafter(middle, 1e9f), half + 1}, {std::nextafter(static_cast<float>(next), 0.f), half + 1}};
    for (const auto& [x, want] : cases) {
      ASSERT_EQ(want, f16_from_f32(x)) << "after " << half << ": " << x;
      ASSERT_EQ(want | 0x8000u, f16_from_f32(-x)) << "after " << half << ": " << -x;
    }
  }
}

TEST(Float16, Extremes) {
  EXPECT_EQ(0x7bff, f16_from_f32(65519.996f));
  EXPECT_EQ(0x7c00, f16_from_f32(65520.f));
  EXPECT_EQ(0x7c00, f16_from_f32(std::numeric_limits<float>::max()));
  EXPECT_EQ(0xfc00, f16_from_f32(-std::numeric_limits<float>::infinity()));
  EXPECT_EQ(0x0000, f16_from_f32(0x1p-25f));  // a tie between 0 and the smallest
  EXPECT_EQ(0x0001, f16_from_f32(std::nextafter(0x1p-25f, 1.f)));
  EXPECT_EQ(0x8000, f16_from_f32(-std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(0x7e00, f16_from_f32(std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace
}  // namespace neve
