// score_codes and weigh_codes of every instruction set against plain matrices of codes. Exact: every bit is compared.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "simd/test_support.h"

namespace neve::simd {
namespace {

using Random = std::mt19937;

// Codes of a page as a matrix, written into the layout of attend_kernels.h by counting upwards through it.
struct Matrix {
  int channels, bits;
  std::vector<std::uint8_t> code;  // [128][channels]
  int at(int token, int channel) const { return code[static_cast<std::size_t>(token * channels + channel)]; }

  Matrix(int channel_count, int width, bool largest, Random& random)
      : channels(channel_count), bits(width), code(static_cast<std::size_t>(kPageTokens * channel_count)) {
    const unsigned top = (1u << bits) - 1;
    for (auto& c : code) c = static_cast<std::uint8_t>(largest ? top : random() & top);
  }

  std::vector<std::uint8_t> keys() const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(channels) * 16 * static_cast<unsigned>(bits));
    std::size_t i = 0;
    for (int quad = 0; quad < channels / 4; ++quad) {
      for (int row = 0; row < 16 * bits; ++row) {
        for (int k = 0; k < 4; ++k, ++i) {
          unsigned byte = 0;
          for (int token = row + 128 - 16 * bits; token >= 0; token -= 16 * bits) {
            byte = byte << bits | static_cast<unsigned>(at(token, quad * 4 + k));
          }
          bytes[i] = static_cast<std::uint8_t>(byte);
        }
      }
    }
    return bytes;
  }

  // Rows of `row_bytes`; what is not ours in them is 0xff. The last row ends with our last channel.
  std::vector<std::uint8_t> values(std::ptrdiff_t row_bytes) const {
    const int rows = 4 * bits;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((rows - 1) * row_bytes + channels * 4), 0xff);
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < channels * 4; ++i) {
        unsigned byte = 0;
        for (int group = row + 32 - rows; group >= 0; group -= rows) {
          byte = byte << bits | static_cast<unsigned>(at(group * 4 + i % 4, i / 4));
        }
        bytes[static_cast<std::size_t>(row * row_bytes + i)] = static_cast<std::uint8_t>(byte);
      }
    }
    return bytes;
  }
};

enum class Fill { kRandom, kMost, kLeast, kSigns };

// Halves within the contract: |128 * hi + lo| <= 16000 for two, |hi| <= 127 for one.
void fill_halves(Fill fill, bool two, Random& random, Guarded<std::int8_t>& hi, Guarded<std::int8_t>& lo) {
  const int limit = two ? 16000 : 127;
  for (std::size_t i = 0; i < hi.size(); ++i) {
    int x = static_cast<int>(random() % (2u * static_cast<unsigned>(limit) + 1)) - limit;
    if (fill == Fill::kMost) x = two ? 124 * 128 + 63 : limit;
    if (fill == Fill::kLeast) x = two ? -124 * 128 - 64 : -limit;
    if (fill == Fill::kSigns) x = i % 3 == 0 ? -limit : limit;
    const int high = two ? (x + 64) >> 7 : x;
    hi[i] = static_cast<std::int8_t>(high);
    lo[i] = static_cast<std::int8_t>(two ? x - high * 128 : 0);
  }
}

float result_of(std::int64_t sum_hi, std::int64_t sum_lo, bool two, float scale, float before) {
  const float dot =
      two ? std::fma(static_cast<float>(sum_hi), 128.f, static_cast<float>(sum_lo)) : static_cast<float>(sum_hi);
  return std::fma(dot, scale, before);
}

struct Case {
  const Kernels* kernels;
  int bits;
  bool two;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.kernels->name) + "_" + std::to_string(info.param.bits) + "bit_" +
         (info.param.two ? "two" : "one");
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Kernels* kernels : running_kernels()) {
    for (int bits : {8, 4, 2}) {
      for (bool two : {false, true}) list.push_back({kernels, bits, two});
    }
  }
  return list;
}

class Codes : public testing::TestWithParam<Case> {
 protected:
  void check(int channels, int heads, Fill fill, Random& random);
  void check_scores(const Matrix& codes, int heads, Fill fill, Random& random);
  void check_weighed(const Matrix& codes, int heads, Fill fill, Random& random);
};

void Codes::check_scores(const Matrix& codes, int heads, Fill fill, Random& random) {
  const auto& [kernels, bits, two] = GetParam();
  const Guarded<std::uint8_t> keys(codes.keys());
  const std::ptrdiff_t stride = codes.channels + 4 * static_cast<int>(random() % 3), score_stride = 128 + heads % 3;
  Guarded<std::int8_t> hi(static_cast<std::size_t>((heads - 1) * stride + codes.channels)), lo(hi.size());
  fill_halves(fill, two, random, hi, lo);
  Guarded<float> scale(static_cast<std::size_t>(heads));
  for (int h = 0; h < heads; ++h) scale[static_cast<std::size_t>(h)] = static_cast<float>(h + 1) * 0.01f;
  Guarded<float> scores(static_cast<std::size_t>((heads - 1) * score_stride + 128));
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(random() % 1000) - 500.f;
  const std::vector<float> before = scores.copy();
  std::vector<float> want = before;
  for (int h = 0; h < heads; ++h) {
    for (int token = 0; token < kPageTokens; ++token) {
      std::int64_t sum_hi = 0, sum_lo = 0;
      for (int c = 0; c < codes.channels; ++c) {
        const auto at = static_cast<std::size_t>(h * stride + c);
        sum_hi += codes.at(token, c) * hi[at];
        sum_lo += codes.at(token, c) * lo[at];
      }
      float& score = want[static_cast<std::size_t>(h * score_stride + token)];
      score = result_of(sum_hi, sum_lo, two, scale[static_cast<std::size_t>(h)], score);
    }
  }
  kernels->attend->score_codes({keys.data(), bits, codes.channels / 4, hi.data(), two ? lo.data() : nullptr, stride,
                                heads, scale.data(), scores.data(), score_stride,
                                random() % 2 != 0 ? keys.data() : nullptr});
  ASSERT_EQ(want, scores.copy()) << "scores, channels " << codes.channels << ", heads " << heads;
}

void Codes::check_weighed(const Matrix& codes, int heads, Fill fill, Random& random) {
  const auto& [kernels, bits, two] = GetParam();
  const std::ptrdiff_t row_bytes = 4 * (codes.channels + 4 * static_cast<int>(random() % 3));
  const Guarded<std::uint8_t> values(codes.values(row_bytes));
  const std::ptrdiff_t stride = codes.channels + heads % 3;
  Guarded<std::int8_t> hi(static_cast<std::size_t>(heads) * kPageTokens), lo(hi.size());
  fill_halves(fill, two, random, hi, lo);
  Guarded<float> scale(static_cast<std::size_t>(heads));
  for (int h = 0; h < heads; ++h) scale[static_cast<std::size_t>(h)] = static_cast<float>(h + 1) * -0.3f;
  Guarded<float> out(static_cast<std::size_t>((heads - 1) * stride + codes.channels));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(random() % 1000) - 500.f;
  std::vector<float> want = out.copy();
  for (int h = 0; h < heads; ++h) {
    for (int c = 0; c < codes.channels; ++c) {
      std::int64_t sum_hi = 0, sum_lo = 0;
      for (int token = 0; token < kPageTokens; ++token) {
        const auto at = static_cast<std::size_t>(h * kPageTokens + token);
        sum_hi += codes.at(token, c) * hi[at];
        sum_lo += codes.at(token, c) * lo[at];
      }
      float& x = want[static_cast<std::size_t>(h * stride + c)];
      x = result_of(sum_hi, sum_lo, two, scale[static_cast<std::size_t>(h)], x);
    }
  }
  kernels->attend->weigh_codes({values.data(), bits, codes.channels, row_bytes, hi.data(), two ? lo.data() : nullptr,
                                heads, scale.data(), out.data(), stride, random() % 2 != 0 ? values.data() : nullptr});
  ASSERT_EQ(want, out.copy()) << "weighed values, channels " << codes.channels << ", heads " << heads;
}

void Codes::check(int channels, int heads, Fill fill, Random& random) {
  const Matrix codes(channels, GetParam().bits, fill == Fill::kMost || fill == Fill::kLeast, random);
  check_scores(codes, heads, fill, random);
  if (!HasFatalFailure()) check_weighed(codes, heads, fill, random);
}

TEST_P(Codes, EveryNumberOfHeads) {
  Random random(1);
  for (int channels : {4, 36, 68}) {
    for (int heads = 1; heads <= 9 && !HasFatalFailure(); ++heads) check(channels, heads, Fill::kRandom, random);
  }
}

TEST_P(Codes, EveryHeadSize) {
  Random random(2);
  for (int channels : {8, 12, 64, 80, 96, 100, 128, 192, 256, 576}) {
    if (!HasFatalFailure()) check(channels, 3, Fill::kRandom, random);
  }
  for (int channels = 4; channels <= 128 && !HasFatalFailure(); channels += 4) {
    check(channels, 1 + channels / 4 % 4, Fill::kRandom, random);
  }
}

// Sums as large as they get: nothing may saturate or wrap. 512 and 516 channels: where halves can no longer be joined.
TEST_P(Codes, Extremes) {
  Random random(3);
  for (int channels : {64, 128, 512, 516, 576}) {
    for (Fill fill : {Fill::kMost, Fill::kLeast, Fill::kSigns}) {
      for (int heads : {1, 2, 4}) {
        if (!HasFatalFailure()) check(channels, heads, fill, random);
      }
    }
  }
}

TEST_P(Codes, NoQuadsChangeNothing) {
  const auto& [kernels, bits, two] = GetParam();
  const std::int8_t none[4] = {1, 1, 1, 1};
  const float scale = 1.f;
  std::vector<float> scores(kPageTokens, 2.5f);
  const std::uint8_t code = 255;
  kernels->attend->score_codes({&code, bits, 0, none, two ? none : nullptr, 4, 1, &scale, scores.data(), 128, nullptr});
  EXPECT_EQ(std::vector<float>(kPageTokens, 2.5f), scores);
}

INSTANTIATE_TEST_SUITE_P(Isa, Codes, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace neve::simd
