// The coding kernels of every instruction set: exact against formulas written another way, and against each other.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "simd/test_support.h"

namespace neve::simd {
namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

class Coding : public testing::TestWithParam<const Kernels*> {
 protected:
  const CodingKernels& kernels() const { return *GetParam()->coding; }
  float normal() { return normal_(random_); }
  std::uint32_t word() { return static_cast<std::uint32_t>(random_()); }

 private:
  std::mt19937 random_{11};
  std::normal_distribution<float> normal_;
};

TEST_P(Coding, EveryF16) {
  Guarded<std::uint16_t> x(0x10000);
  Guarded<float> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  kernels().f32_from_f16(x.data(), out.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float want = f32_from_f16(x[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(out[i]));
    } else {
      ASSERT_EQ(bits_of(want), bits_of(out[i])) << i;
    }
  }
}

// Around every step of the rounding, and a sample of all patterns of f32.
TEST_P(Coding, F32ToF16) {
  std::vector<float> numbers;
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const float here = f32_from_f16(static_cast<std::uint16_t>(half));
    const float next = half == 0x7bff ? 65536.f : f32_from_f16(static_cast<std::uint16_t>(half + 1));
    const float middle = (here + next) / 2;
    for (float x : {here, std::nextafter(middle, 0.f), middle, std::nextafter(middle, 1e9f)}) {
      numbers.push_back(half % 2 == 0 ? x : -x);
    }
  }
  for (std::uint64_t pattern = 0; pattern < 1ull << 32; pattern += 65521) {
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  }
  Guarded<float> x(numbers);
  Guarded<std::uint16_t> out(x.size());
  kernels().f16_from_f32(x.data(), out.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(f32_from_f16(out[i])));
    } else {
      ASSERT_EQ(f16_from_f32(x[i]), out[i]) << x[i];
    }
  }
}

TEST_P(Coding, ConversionsOfFewNumbers) {
  for (std::size_t n = 0; n <= 35; ++n) {
    Guarded<float> x(n), back(n);
    Guarded<std::uint16_t> half(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) * 0.25f - 3.f;
    kernels().f16_from_f32(x.data(), half.data(), n);
    kernels().f32_from_f16(half.data(), back.data(), n);
    ASSERT_EQ(x.copy(), back.copy());
  }
}

TEST_P(Coding, Ranges) {
  for (int columns : {1, 2, 7, 15, 16, 17, 64, 80, 100, 128}) {
    for (int rows : {1, 2, 3, 128}) {
      const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(columns);
      Guarded<float> x(r * c);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = word() % 9 == 0 ? (word() % 2 != 0 ? 0.f : -0.f) : normal();
      Guarded<float> row_low(r), row_high(r), column_low(c), column_high(c);
      kernels().row_range(x.data(), rows, columns, row_low.data(), row_high.data());
      kernels().column_range(x.data(), rows, columns, column_low.data(), column_high.data());
      for (std::size_t i = 0; i < r; ++i) {
        float low = x[i * c], high = low;
        for (std::size_t k = 0; k < c; ++k) low = std::fmin(low, x[i * c + k]), high = std::fmax(high, x[i * c + k]);
        ASSERT_TRUE(low == row_low[i] && high == row_high[i]) << "row " << i << " of " << rows << " x " << columns;
      }
      for (std::size_t k = 0; k < c; ++k) {
        float low = x[k], high = low;
        for (std::size_t i = 0; i < r; ++i) low = std::fmin(low, x[i * c + k]), high = std::fmax(high, x[i * c + k]);
        ASSERT_TRUE(low == column_low[k] && high == column_high[k]) << "column " << k;
      }
      // Signs of zeros too: the same on every instruction set.
      Guarded<float> low(r), high(r), left(c), right(c);
      kCodingScalar.row_range(x.data(), rows, columns, low.data(), high.data());
      kCodingScalar.column_range(x.data(), rows, columns, left.data(), right.data());
      for (std::size_t i = 0; i < r; ++i) {
        ASSERT_TRUE(bits_of(low[i]) == bits_of(row_low[i]) && bits_of(high[i]) == bits_of(row_high[i]));
      }
      for (std::size_t k = 0; k < c; ++k) {
        ASSERT_TRUE(bits_of(left[k]) == bits_of(column_low[k]) && bits_of(right[k]) == bits_of(column_high[k]));
      }
    }
  }
}

TEST_P(Coding, QuantizeTiesToEvenAndClamps) {
  const std::vector<float> numbers = {0.f,   0.5f,  1.5f, 2.5f,        3.5f,  253.5f, 254.5f, 255.5f,
                                      300.f, -0.5f, -7.f, 0.49999997f, 1e30f, -1e30f, 127.5f, 128.5f};
  const std::vector<std::uint8_t> want = {0, 0, 2, 2, 4, 254, 254, 255, 255, 0, 0, 0, 255, 0, 128, 128};
  const auto n = static_cast<int>(numbers.size());
  const float scale = 1.f, min = 0.f;
  std::vector<std::uint8_t> codes(numbers.size());
  kernels().quantize_rows(numbers.data(), 1, n, &scale, &min, codes.data());
  EXPECT_EQ(want, codes);
  const std::vector<float> scales(numbers.size(), 1.f), mins(numbers.size(), 0.f);
  kernels().quantize_columns(numbers.data(), 1, n, scales.data(), mins.data(), codes.data());
  EXPECT_EQ(want, codes);
  const float zero = 0.f;
  kernels().quantize_rows(numbers.data(), 1, n, &zero, &min, codes.data());
  EXPECT_EQ(std::vector<std::uint8_t>(numbers.size(), 0), codes);
}

// x / scale is halfway between two codes; x times the reciprocal often is not.
TEST_P(Coding, QuantizeDivides) {
  for (float scale : {3.f, 5.f, 7.f, 11.f, 0x1.8p-10f, 49.f}) {
    Guarded<float> x(255);
    Guarded<std::uint8_t> codes(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = scale * (static_cast<float>(i) + 0.5f);
    const float min = 0.f;
    kernels().quantize_rows(x.data(), 1, 255, &scale, &min, codes.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(i % 2 == 0 ? i : i + 1, codes[i]) << "scale " << scale;
  }
}

TEST_P(Coding, Quantize) {
  for (int columns : {1, 3, 8, 17, 64, 80, 100, 128}) {
    for (int rows : {1, 5, 128}) {
      const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(columns);
      Guarded<float> x(r * c), row_scale(r), row_min(r), column_scale(c), column_min(c);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = normal();
      for (std::size_t i = 0; i < r; ++i) row_scale[i] = i % 7 == 3 ? 0.f : 0.02f + 0.001f * static_cast<float>(i);
      for (std::size_t k = 0; k < c; ++k) column_scale[k] = k % 7 == 3 ? 0.f : 0.02f + 0.001f * static_cast<float>(k);
      for (std::size_t i = 0; i < r; ++i) row_min[i] = -2.f - 0.01f * static_cast<float>(i);
      for (std::size_t k = 0; k < c; ++k) column_min[k] = -2.f - 0.01f * static_cast<float>(k);
      Guarded<std::uint8_t> by_row(r * c), by_column(r * c);
      kernels().quantize_rows(x.data(), rows, columns, row_scale.data(), row_min.data(), by_row.data());
      kernels().quantize_columns(x.data(), rows, columns, column_scale.data(), column_min.data(), by_column.data());
      const auto code = [](float number, float scale, float min) {
        if (scale == 0.f) return 0l;
        const float q = (number - min) / scale;
        return std::lrint(std::fmin(std::fmax(q, 0.f), 255.f));
      };
      for (std::size_t i = 0; i < r * c; ++i) {
        ASSERT_EQ(code(x[i], row_scale[i / c], row_min[i / c]), by_row[i]);
        ASSERT_EQ(code(x[i], column_scale[i % c], column_min[i % c]), by_column[i]);
      }
    }
  }
}

// Every code, in both halves of the output, by the formulas of the three shifts.
TEST_P(Coding, Narrow8To4) {
  const NarrowRule equivalent{}, direct{1, 0, 4, {4, 8, 12}}, modified{1, 8, 4, {2, 6, 10}};
  for (std::size_t n : {1u, 15u, 64u, 256u}) {
    for (unsigned first = 0; first < 256; ++first) {
      Guarded<std::uint8_t> in(2 * n), out(n);
      for (std::size_t i = 0; i < 2 * n; ++i) in[i] = static_cast<std::uint8_t>(first + i * 7);
      const auto check = [&](const NarrowRule& rule, auto want) {
        kernels().narrow_8_to_4(in.data(), n, rule, out.data());
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(want(in[i]), out[i] & 15) << "code " << int{in[i]};
          ASSERT_EQ(want(in[i + n]), out[i] >> 4) << "code " << int{in[i + n]};
        }
      };
      check(equivalent, [](int q) { return static_cast<int>(std::lrint(q / 17.0)); });
      check(direct, [](int q) { return q / 16; });
      check(modified, [](int q) { return std::min(15, static_cast<int>(std::floor(q / 16.0 + 0.5))); });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Coding, Narrow4To2) {
  const NarrowRule equivalent{}, direct{1, 0, 4, {4, 8, 12}}, modified{1, 8, 4, {2, 6, 10}},
      clipped{241, 8, 12, {4, 8, 12}};
  for (std::size_t n : {1u, 15u, 64u, 256u}) {
    for (unsigned first = 0; first < 256; ++first) {
      Guarded<std::uint8_t> in(2 * n), out(n);
      for (std::size_t i = 0; i < 2 * n; ++i) in[i] = static_cast<std::uint8_t>(first + i * 7);
      const auto check = [&](const NarrowRule& rule, auto want) {
        kernels().narrow_4_to_2(in.data(), n, rule, out.data());
        for (std::size_t i = 0; i < n; ++i) {
          const int lanes[4] = {in[i] & 15, in[i + n] & 15, in[i] >> 4, in[i + n] >> 4};
          for (int k = 0; k < 4; ++k) ASSERT_EQ(want(lanes[k]), out[i] >> (2 * k) & 3) << "code " << lanes[k];
        }
      };
      check(equivalent, [](int q) { return static_cast<int>(std::lrint(q / 5.0)); });
      check(direct, [](int q) { return q / 4; });
      check(modified, [](int q) { return std::min(3, (q + 2) / 4); });
      check(clipped, [](int q) { return q < 4 ? 0 : q < 8 ? 1 : q < 12 ? 2 : 3; });
      if (HasFatalFailure()) return;
    }
  }
}

// The transform by its definition: sign (-1)^(number of common bits), over sqrt(n).
TEST_P(Coding, RotateIsHadamard) {
  for (int n : {1, 2, 4, 16, 64, 128}) {
    const auto size = static_cast<std::size_t>(n);
    for (std::size_t stride : {size, size + 5}) {
      constexpr std::size_t kRows = 3;
      Guarded<float> x((kRows - 1) * stride + size);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = normal();
      const std::vector<float> before = x.copy();
      Guarded<float> scalar(before);
      kernels().rotate_rows(x.data(), kRows, static_cast<std::ptrdiff_t>(stride), n);
      kCodingScalar.rotate_rows(scalar.data(), kRows, static_cast<std::ptrdiff_t>(stride), n);
      EXPECT_EQ(scalar.copy(), x.copy());
      for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t i = 0; i < size; ++i) {
          double sum = 0, terms = 0;
          for (std::size_t k = 0; k < size; ++k) {
            const double number = before[row * stride + k] / std::sqrt(static_cast<double>(n));
            sum += std::popcount(i & k) % 2 == 0 ? number : -number;
            terms += std::fabs(number);
          }
          ASSERT_NEAR(sum, x[row * stride + i], 1e-6 * terms);
        }
      }
      kernels().rotate_rows(x.data(), kRows, static_cast<std::ptrdiff_t>(stride), n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool between = i % stride >= size;
        ASSERT_NEAR(before[i], x[i], between ? 0.0 : 3e-6) << "twice is the identity, and between rows nothing changes";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Coding, testing::ValuesIn(running_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

}  // namespace
}  // namespace neve::simd
