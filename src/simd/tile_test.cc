// The tile kernels of every instruction set against double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "simd/test_support.h"

namespace neve::simd {
namespace {

class Tile : public testing::TestWithParam<const Kernels*> {
 protected:
  const TileKernels& kernels() const { return *GetParam()->tile; }
  float normal() { return normal_(random_); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
  void check_multiply(int rows, int columns, int depth, int accumulate);
  void check_expand_keys(int bits, int quads, bool per_token);
  void check_expand_values(int bits, int channels);

 private:
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
};

void Tile::check_multiply(int rows, int columns, int depth, int accumulate) {
  const auto r = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns),
             d = static_cast<std::size_t>(depth);
  const std::size_t a_stride = d + r % 3, b_stride = n + d % 3, c_stride = n + 1 + r % 2;
  Guarded<float> a((r - 1) * a_stride + d), b(d == 0 ? 0 : (d - 1) * b_stride + n), c((r - 1) * c_stride + n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = normal();
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = normal();
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = normal();
  const std::vector<float> before = c.copy();
  kernels().multiply({a.data(), static_cast<std::ptrdiff_t>(a_stride), b.data(), static_cast<std::ptrdiff_t>(b_stride),
                      c.data(), static_cast<std::ptrdiff_t>(c_stride), rows, columns, depth, accumulate});
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::size_t row = i / c_stride, column = i % c_stride;
    if (column >= n) {
      ASSERT_EQ(before[i], c[i]) << "between rows";
      continue;
    }
    double sum = accumulate != 0 ? before[i] : 0, terms = std::fabs(sum);
    for (std::size_t k = 0; k < d; ++k) {
      const double term = static_cast<double>(a[row * a_stride + k]) * b[k * b_stride + column];
      sum += term;
      terms += std::fabs(term);
    }
    ASSERT_NEAR(sum, c[i], 1e-5 * terms) << rows << " x " << columns << " x " << depth << " at " << row << ", "
                                         << column;
  }
}

TEST_P(Tile, Multiply) {
  for (int rows : {1, 2, 5, 6, 7, 13, 24}) {
    for (int columns : {1, 3, 4, 7, 8, 15, 16, 17, 31, 64, 65, 80, 127, 128}) {
      for (int depth : {0, 1, 4, 67}) {
        check_multiply(rows, columns, depth, 0);
        check_multiply(rows, columns, depth, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
  check_multiply(9, 128, 576, 0);
  check_multiply(9, 576, 128, 1);
}

struct Grid {
  Guarded<std::uint16_t> scale, min;
  explicit Grid(std::size_t n) : scale(n), min(n) {
    for (std::size_t i = 0; i < n; ++i) {
      scale[i] = f16_from_f32(0.01f + 0.001f * static_cast<float>(i % 50));
      min[i] = f16_from_f32(-2.f - 0.05f * static_cast<float>(i % 30));
    }
  }
  // Returns: what a code stands for; `terms` gets the sum of absolute terms.
  double number(std::size_t at, int code, float multiple, float center, double* terms) const {
    const double s = f32_from_f16(scale[at]), m = f32_from_f16(min[at]);
    *terms = std::fabs(code * s * multiple) + std::fabs(m) + std::fabs((127.5 - center * multiple) * s);
    return m + 127.5 * s + multiple * s * (code - center);
  }
};

constexpr float multiple_of(int bits) { return bits == 8 ? 1.f : bits == 4 ? 17.f : 85.f; }
constexpr float center_of(int bits) { return bits == 8 ? 127.5f : bits == 4 ? 7.5f : 1.5f; }

void Tile::check_expand_keys(int bits, int quads, bool per_token) {
  const auto channels = static_cast<std::size_t>(4 * quads), width = static_cast<std::size_t>(bits);
  Guarded<std::uint8_t> codes(channels * 16 * width);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = byte();
  const Grid grid(per_token ? 128 : channels);
  const std::size_t stride = 128 + channels % 3;
  Guarded<float> out((channels - 1) * stride + 128);
  kernels().expand_keys({codes.data(), bits, quads, 0, grid.scale.data(), grid.min.data(), per_token ? 1 : 0,
                         multiple_of(bits), center_of(bits), out.data(), static_cast<std::ptrdiff_t>(stride)});
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t t = 0; t < 128; ++t) {
      const std::size_t rows = 16 * width;
      const unsigned shared = codes[c / 4 * 64 * width + t % rows * 4 + c % 4];
      const int code = static_cast<int>(shared / (1u << (t / rows * width)) % (1u << width));
      double terms = 0;
      const double want = grid.number(per_token ? t : c, code, multiple_of(bits), center_of(bits), &terms);
      ASSERT_NEAR(want, out[c * stride + t], 1e-6 * terms) << bits << " bits, channel " << c << ", token " << t;
    }
  }
}

void Tile::check_expand_values(int bits, int channels) {
  const auto n = static_cast<std::size_t>(channels), width = static_cast<std::size_t>(bits), rows = 4 * width;
  const std::size_t row_bytes = 4 * (n + n % 3);
  Guarded<std::uint8_t> codes((rows - 1) * row_bytes + 4 * n);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = byte();
  const Grid grid(128);
  const std::size_t stride = n + n % 2;
  Guarded<float> out(127 * stride + n);
  kernels().expand_values({codes.data(), bits, channels, static_cast<std::ptrdiff_t>(row_bytes), grid.scale.data(),
                           grid.min.data(), 1, multiple_of(bits), center_of(bits), out.data(),
                           static_cast<std::ptrdiff_t>(stride)});
  for (std::size_t t = 0; t < 128; ++t) {
    for (std::size_t c = 0; c < n; ++c) {
      const std::size_t group = t / 4;
      const unsigned shared = codes[group % rows * row_bytes + c * 4 + t % 4];
      const int code = static_cast<int>(shared / (1u << (group / rows * width)) % (1u << width));
      double terms = 0;
      const double want = grid.number(t, code, multiple_of(bits), center_of(bits), &terms);
      ASSERT_NEAR(want, out[t * stride + c], 1e-6 * terms) << bits << " bits, channel " << c << ", token " << t;
    }
  }
}

TEST_P(Tile, ExpandKeys) {
  for (int bits : {8, 4, 2}) {
    for (int channels : {4, 36, 64, 68, 80, 128, 576}) {
      check_expand_keys(bits, channels / 4, false);
      check_expand_keys(bits, channels / 4, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Tile, ExpandValues) {
  for (int bits : {8, 4, 2}) {
    for (int channels : {4, 36, 64, 68, 80, 100, 128, 576}) {
      check_expand_values(bits, channels);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Tile, TransposeF16) {
  for (int tokens : {1, 4, 15, 16, 17, 100, 128}) {
    for (int dim : {1, 4, 36, 66, 80, 128, 576}) {
      const auto t = static_cast<std::size_t>(tokens), d = static_cast<std::size_t>(dim), stride = t + t % 3;
      Guarded<std::uint16_t> x(t * d);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = f16_from_f32(normal());
      Guarded<float> out((d - 1) * stride + t);
      kernels().transpose_f16(x.data(), tokens, dim, out.data(), static_cast<std::ptrdiff_t>(stride));
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t channel = i / stride, token = i % stride;
        ASSERT_EQ(token < t ? f32_from_f16(x[token * d + channel]) : 0.f, out[i]) << tokens << " x " << dim;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Tile, testing::ValuesIn(running_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

}  // namespace
}  // namespace neve::simd
