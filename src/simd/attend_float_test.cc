// The float kernels of decode attention of every instruction set: halves exact, floats against double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "simd/test_support.h"

namespace neve::simd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Floats : public testing::TestWithParam<const Kernels*> {
 protected:
  const AttendKernels& kernels() const { return *GetParam()->attend; }
  float normal() { return normal_(random_); }
  std::size_t below(std::size_t n) { return random_() % n; }
  void fill(Guarded<float>& x) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = normal();
  }
  void fill(Guarded<std::uint16_t>& x, float from, float to) {
    std::uniform_real_distribution<float> some(from, to);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = f16_from_f32(some(random_));
  }
  void check_fold(int channels, int heads, bool two, float multiple, float center, bool values);

 private:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

// What fold_keys and fold_values promise, head by head, in double.
void Floats::check_fold(int channels, int heads, bool two, float multiple, float center, bool values) {
  const auto n = static_cast<std::size_t>(channels);
  const std::size_t stride = values ? n + below(3) : n + 4 * below(3), half_stride = values ? n : stride;
  Guarded<float> x((static_cast<std::size_t>(heads) - 1) * stride + n);
  fill(x);
  Guarded<std::uint16_t> scale(n), min(n);
  fill(scale, 0.001f, 0.1f);
  fill(min, -6.f, -1.f);
  const std::size_t halves = (static_cast<std::size_t>(heads) - 1) * half_stride + n;
  Guarded<std::int8_t> hi(halves), lo(halves);
  Guarded<float> out_scale(static_cast<std::size_t>(heads)), offset(out_scale.size());
  for (std::size_t h = 0; h < offset.size(); ++h) offset[h] = static_cast<float>(h) - 1.5f;
  if (values) {
    kernels().fold_values({x.data(), static_cast<std::ptrdiff_t>(stride), heads, scale.data(), min.data(), multiple,
                           center, hi.data(), two ? lo.data() : nullptr, out_scale.data(), offset.data()});
  } else {
    kernels().fold_keys({x.data(), static_cast<std::ptrdiff_t>(stride), heads, channels, scale.data(), min.data(),
                         multiple, center, hi.data(), two ? lo.data() : nullptr, out_scale.data(), offset.data()});
  }
  const int limit = two ? 16000 : 127;
  for (std::size_t h = 0; h < out_scale.size(); ++h) {
    float largest = 0.f;
    for (std::size_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::fabs(x[h * stride + i] * (f32_from_f16(scale[i]) * multiple)));
    }
    ASSERT_EQ(largest / static_cast<float>(limit), out_scale[h]);
    const float inverse = largest >= kLeastFolded ? static_cast<float>(limit) / largest : 0.f;
    double middle = 0, terms = 0, sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double s = f32_from_f16(scale[i]), term = x[h * stride + i] * (f32_from_f16(min[i]) + 127.5 * s);
      middle += term;
      terms += std::fabs(term);
      const float folded = x[h * stride + i] * (f32_from_f16(scale[i]) * multiple);
      const auto want = static_cast<int>(std::nearbyint(folded * inverse));
      const int high = hi[h * half_stride + i], low = lo[h * half_stride + i];
      ASSERT_EQ(want, two ? high * 128 + low : high) << "channel " << i;
      ASSERT_TRUE(low >= -64 && low <= 63) << low;
      sum += want;
    }
    const double rest = static_cast<double>(out_scale[h]) * center * sum;
    const double start = static_cast<double>(h) - 1.5;
    EXPECT_NEAR(start + middle - rest, offset[h], 1e-5 * (terms + std::fabs(rest) + std::fabs(start)));
  }
  for (std::size_t h = 0; h + 1 < out_scale.size(); ++h) {  // nothing is written between the heads
    for (std::size_t i = n; i < half_stride; ++i) ASSERT_EQ(0, hi[h * half_stride + i] | lo[h * half_stride + i]);
  }
}

TEST_P(Floats, FoldKeys) {
  for (int channels : {4, 36, 64, 68, 80, 96, 100, 128, 192, 256, 576}) {
    for (int heads : {1, 2, 3, 4, 5, 8, 9}) {
      check_fold(channels, heads, true, 17.f, 7.5f, false);
      check_fold(channels, heads, false, 85.f, 1.5f, false);
      if (HasFatalFailure()) return;
    }
  }
  check_fold(64, 3, true, 0.f, 0.f, false);  // multiple 0: only the middle counts
}

TEST_P(Floats, FoldValues) {
  for (int heads = 1; heads <= 9; ++heads) {
    check_fold(kPageTokens, heads, true, 1.f, 127.5f, true);
    check_fold(kPageTokens, heads, false, 17.f, 7.5f, true);
    if (HasFatalFailure()) return;
  }
}

// The inverse of such a largest weight is infinite in f32, and 0 * infinity not a number.
TEST_P(Floats, FoldValuesOfNextToNothing) {
  for (const float weight : {1e-45f, 1e-40f, 9e-31f}) {
    Guarded<float> weights(kPageTokens);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 3 == 0 ? weight : 0.f;
    Guarded<std::uint16_t> scale(kPageTokens), min(kPageTokens);
    fill(scale, 0.5f, 1.f);
    fill(min, -6.f, -1.f);
    Guarded<std::int8_t> hi(kPageTokens), lo(kPageTokens);
    for (std::int8_t* low : {lo.data(), static_cast<std::int8_t*>(nullptr)}) {
      float out_scale = -1.f, offset = 0.f;
      kernels().fold_values(
          {weights.data(), kPageTokens, 1, scale.data(), min.data(), 1.f, 127.5f, hi.data(), low, &out_scale, &offset});
      EXPECT_TRUE(out_scale >= 0.f && out_scale < 1e-30f) << out_scale;
      EXPECT_LT(std::fabs(offset), 1e-25f);
      for (std::size_t i = 0; i < kPageTokens; ++i) ASSERT_EQ(0, hi[i] | lo[i]) << i;
    }
  }
}

TEST_P(Floats, ScoreF16) {
  for (int dim : {1, 4, 36, 64, 66, 80, 96, 100, 128, 192, 256, 576}) {
    for (int heads : {1, 2, 3, 4, 5, 9}) {
      for (int tokens : {1, 7, 16, 37}) {
        const std::ptrdiff_t query_stride = dim + heads % 3, score_stride = tokens + heads % 2;
        Guarded<std::uint16_t> keys(static_cast<std::size_t>(tokens * dim));
        fill(keys, -3.f, 3.f);
        Guarded<float> queries(static_cast<std::size_t>((heads - 1) * query_stride + dim));
        fill(queries);
        Guarded<float> scores(static_cast<std::size_t>((heads - 1) * score_stride + tokens));
        kernels().score_f16(
            {keys.data(), tokens, dim, queries.data(), query_stride, heads, scores.data(), score_stride});
        for (int h = 0; h < heads; ++h) {
          for (int t = 0; t < tokens; ++t) {
            double sum = 0, terms = 0;
            for (int c = 0; c < dim; ++c) {
              const double term = static_cast<double>(queries[static_cast<std::size_t>(h * query_stride + c)]) *
                                  f32_from_f16(keys[static_cast<std::size_t>(t * dim + c)]);
              sum += term;
              terms += std::fabs(term);
            }
            ASSERT_NEAR(sum, scores[static_cast<std::size_t>(h * score_stride + t)], 1e-5 * terms)
                << "dim " << dim << " heads " << heads << " tokens " << tokens << " head " << h << " token " << t;
          }
          if (h + 1 < heads && score_stride > tokens) {
            ASSERT_EQ(0.f, scores[static_cast<std::size_t>(h * score_stride + tokens)]);
          }
        }
      }
    }
  }
}

TEST_P(Floats, WeighF16) {
  for (int dim : {1, 4, 36, 64, 66, 80, 96, 100, 128, 192, 256, 576}) {
    for (int heads : {1, 2, 3, 4, 5, 9}) {
      for (int tokens : {1, 7, 37}) {
        const std::ptrdiff_t weight_stride = tokens + heads % 2, out_stride = dim + heads % 3;
        Guarded<std::uint16_t> values(static_cast<std::size_t>(tokens * dim));
        fill(values, -3.f, 3.f);
        Guarded<float> weights(static_cast<std::size_t>((heads - 1) * weight_stride + tokens));
        fill(weights);
        Guarded<float> out(static_cast<std::size_t>((heads - 1) * out_stride + dim));
        fill(out);
        const std::vector<float> before = out.copy();
        kernels().weigh_f16({values.data(), tokens, dim, weights.data(), weight_stride, heads, out.data(), out_stride});
        for (int h = 0; h < heads; ++h) {
          for (int c = 0; c < dim; ++c) {
            const auto at = static_cast<std::size_t>(h * out_stride + c);
            double sum = before[at], terms = std::fabs(before[at]);
            for (int t = 0; t < tokens; ++t) {
              const double term = static_cast<double>(weights[static_cast<std::size_t>(h * weight_stride + t)]) *
                                  f32_from_f16(values[static_cast<std::size_t>(t * dim + c)]);
              sum += term;
              terms += std::fabs(term);
            }
            ASSERT_NEAR(sum, out[at], 1e-5 * terms) << "dim " << dim << " heads " << heads << " channel " << c;
          }
          for (std::ptrdiff_t c = dim; h + 1 < heads && c < out_stride; ++c) {
            ASSERT_EQ(before[static_cast<std::size_t>(h * out_stride + c)],
                      out[static_cast<std::size_t>(h * out_stride + c)]);
          }
        }
      }
    }
  }
}

TEST_P(Floats, Max) {
  EXPECT_EQ(-kInfinity, kernels().max(nullptr, 0));
  for (std::size_t n = 1; n <= 131; ++n) {
    Guarded<float> x(n);
    for (std::size_t at = 0; at < n; at += n < 40 ? 1 : 13) {
      for (std::size_t i = 0; i < n; ++i) x[i] = -5.f - static_cast<float>(below(100));
      x[at] = -1.25f;
      ASSERT_EQ(-1.25f, kernels().max(x.data(), n)) << n << " numbers, largest at " << at;
    }
    for (std::size_t i = 0; i < n; ++i) x[i] = -kInfinity;
    ASSERT_EQ(-kInfinity, kernels().max(x.data(), n));
  }
}

TEST_P(Floats, ExpIsAccurateOverTheWholeRange) {
  constexpr std::size_t kCount = 4096;
  double worst = 0;
  for (float top : {0.f, 3.5f, -1000.f, 70.f}) {
    Guarded<float> x(kCount);
    for (std::size_t i = 0; i < kCount; ++i) x[i] = top - static_cast<float>(i) * (110.f / kCount);
    const std::vector<float> before = x.copy();
    kernels().exp_sum(x.data(), kCount, top);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double want = std::exp(static_cast<double>(before[i] - top));
      if (want >= 0x1p-126) {
        worst = std::max(worst, std::fabs(x[i] - want) / want);
      } else {
        ASSERT_NEAR(want, x[i], 0x1p-148) << "exp of " << before[i] - top;
      }
    }
    EXPECT_EQ(1.f, x[0]);
  }
  EXPECT_LT(worst, 3e-7);
}

TEST_P(Floats, ExpSum) {
  EXPECT_EQ(0.f, kernels().exp_sum(nullptr, 0, 0.f));
  for (std::size_t n = 1; n <= 150; ++n) {
    Guarded<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = below(5) == 0 ? -kInfinity : -static_cast<float>(below(20000)) * 1e-3f;
    const std::vector<float> before = x.copy();
    const float sum = kernels().exp_sum(x.data(), n, 0.5f);
    double want = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double e = std::exp(static_cast<double>(before[i] - 0.5f));
      want += e;
      if (before[i] == -kInfinity) {
        ASSERT_EQ(0.f, x[i]);
      } else {
        ASSERT_NEAR(e, x[i], 3e-7 * e);
      }
    }
    ASSERT_NEAR(want, sum, 1e-5 * want);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Floats, testing::ValuesIn(running_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

}  // namespace
}  // namespace neve::simd
