#include "quant/block_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/float16.h"
#include "quant/code_reader.h"
#include "simd/test_support.h"

namespace neve::quant {
namespace {

using Random = std::mt19937_64;
using simd::Guarded;
using simd::Kernels;

constexpr int kChannels[] = {1, 2, 3, 64, 66, 80, 96, 100, 128, 192, 256, 576};
constexpr int kTokenCounts[] = {1, 7, 33, 127, 128};

// Keys as models have them: channels of different size, some with a large mean. Exact f16.
std::vector<std::uint16_t> make_numbers(int tokens, int channels, std::uint64_t seed) {
  Random random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> size(static_cast<std::size_t>(channels)), mean(size.size());
  for (std::size_t c = 0; c < size.size(); ++c) {
    size[c] = std::exp(normal(random));
    mean[c] = c % 7 == 3 ? normal(random) * 30.f : 0.f;
  }
  std::vector<std::uint16_t> x(static_cast<std::size_t>(tokens * channels));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % static_cast<std::size_t>(channels);
    x[i] = f16_from_f32(mean[c] + size[c] * normal(random));
  }
  return x;
}

// A coded block; its arrays end where nobody may write.
struct Block {
  Guarded<std::uint8_t> codes;
  Guarded<std::uint16_t> scale, min;
  Block(std::size_t code_bytes, std::size_t scale_bytes)
      : codes(code_bytes), scale(scale_bytes / 4), min(scale_bytes / 4) {
    // As memory that was used before: everything that is read must have been written.
    std::fill_n(codes.data(), codes.size(), std::uint8_t{0xa5});
    std::fill_n(scale.data(), scale.size(), std::uint16_t{0x7e00});
    std::fill_n(min.data(), min.size(), std::uint16_t{0x7e00});
  }
  BlockScales scales() { return {scale.data(), min.data()}; }
};

KeyLayout shuffled(int channels, std::uint64_t seed) {
  std::vector<std::uint16_t> order(static_cast<std::size_t>(channels));
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  Random random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return graded_key_layout(channels, order, {padded_channels(channels) / 4, 0, 0});
}

// 8-bit keys against the rule, number by number: per channel over the tokens, or per token over a group of channels.
void expect_keys_coded(const Kernels& kernels, int channels, int tokens, const KeyLayout& layout) {
  const Guarded<std::uint16_t> keys(make_numbers(tokens, channels, 11));
  Block block(key_code_bytes(channels, 8),
              layout.groups == 0 ? key_scale_bytes(channels, 0) : static_cast<std::size_t>(layout.groups) * 128 * 4);
  BlockCoder coder(kernels, channels);
  NotFinite where;
  ASSERT_EQ(coder.code_keys(keys.data(), tokens, layout, block.codes.data(), block.scales(), &where),
            CodeResult::kDone);
  const auto x = [&](int t, int c) { return f32_from_f16(keys[static_cast<std::size_t>(t * channels + c)]); };
  for (const KeyRun& run : layout.runs) {
    for (int stored = run.first_quad * 4; stored < (run.first_quad + run.quads) * 4 && stored < channels; ++stored) {
      const int channel = layout.order.empty() ? stored : layout.order[static_cast<std::size_t>(stored)];
      for (int t = 0; t < tokens; ++t) {
        float low = x(t, channel), high = low;
        if (layout.groups == 0) {
          for (int i = 0; i < tokens; ++i) {
            low = std::min(low, x(i, channel));
            high = std::max(high, x(i, channel));
          }
        } else {
          for (int c = run.first_quad * 4; c < std::min((run.first_quad + run.quads) * 4, channels); ++c) {
            low = std::min(low, x(t, c));
            high = std::max(high, x(t, c));
          }
        }
        const Grid grid = make_grid(low, high);
        const auto slot = static_cast<std::size_t>(layout.groups == 0 ? stored : run.group * kPageTokens + t);
        ASSERT_EQ(block.scale[slot], grid.scale) << "token " << t << ", channel " << channel;
        ASSERT_EQ(block.min[slot], grid.min);
        const float scale = f32_from_f16(grid.scale);
        const float code = scale == 0.f ? 0.f : std::nearbyint((x(t, channel) - f32_from_f16(grid.min)) / scale);
        ASSERT_EQ(key_code(block.codes.data(),
                           {8, run.first_quad, run.quads, static_cast<std::size_t>(run.first_quad) * 512, run.group},
                           stored, t),
                  static_cast<int>(code))
            << "token " << t << ", channel " << channel;
      }
    }
    // Tokens and channels that are not there have code 0.
    for (int stored = run.first_quad * 4; stored < (run.first_quad + run.quads) * 4; ++stored) {
      for (int t = stored < channels ? tokens : 0; t < kPageTokens; ++t) {
        ASSERT_EQ(block.codes[static_cast<std::size_t>((stored / 4 * kPageTokens + t) * 4 + stored % 4)], 0);
      }
    }
  }
  for (std::size_t i = 0; i < block.scale.size(); ++i) {
    ASSERT_TRUE(all_finite(&block.scale[i], 1) && all_finite(&block.min[i], 1)) << "slot " << i << " was not written";
  }
}

TEST(BlockCoder, KeysFollowTheRule) {
  const Kernels* kernels = *simd::select_kernels();
  for (const int channels : kChannels) {
    for (const int tokens : kTokenCounts) {
      SCOPED_TRACE(testing::Message() << kernels->name << ", " << channels << " channels, " << tokens << " tokens");
      expect_keys_coded(*kernels, channels, tokens, uniform_key_layout(channels, 8, 0));
      expect_keys_coded(*kernels, channels, tokens, shuffled(channels, 12));
      if (tokens == 33 || tokens == 128) {
        for (const int group : {32, 64, 128}) {
          expect_keys_coded(*kernels, channels, tokens, uniform_key_layout(channels, 8, group));
        }
      }
    }
  }
}

// Values: the numbers that come back are within half a step of the (rotated) numbers that went in.
void expect_values_coded(const Kernels& kernels, int channels, int tokens, int group, int rotate) {
  const Guarded<std::uint16_t> values(make_numbers(tokens, channels, 13));
  const ValueLayout layout = value_layout(channels, 8, group, rotate);
  Block block(layout.code_bytes, value_scale_bytes(channels, group));
  BlockCoder coder(kernels, channels);
  NotFinite where;
  ASSERT_EQ(coder.code_values(values.data(), tokens, layout, block.codes.data(), block.scales(), &where),
            CodeResult::kDone);
  std::vector<double> want(static_cast<std::size_t>(tokens * channels));
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = half_at(values.data(), static_cast<std::ptrdiff_t>(i));
  rotate_heads(&want, tokens, channels, layout.rotated);
  const std::vector<double> got =
      read_values(block.codes.data(), layout, block.scale.data(), block.min.data(), tokens, Shift::kEquivalent, 1);
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < channels; ++c) {
      const auto at = static_cast<std::size_t>(t * channels + c);
      const double step = half_at(block.scale.data(), (c / group) * kPageTokens + t);
      ASSERT_NEAR(got[at], want[at], 0.5 * step + 1e-4) << "token " << t << ", channel " << c;
      if (layout.rotated != 0) continue;
      // Not rotated: the grid and the code by the rule.
      const int first = c / group * group;
      double low = want[static_cast<std::size_t>(t * channels + first)], high = low;
      for (int i = first; i < std::min(first + group, channels); ++i) {
        low = std::min(low, want[static_cast<std::size_t>(t * channels + i)]);
        high = std::max(high, want[static_cast<std::size_t>(t * channels + i)]);
      }
      const Grid grid = make_grid(static_cast<float>(low), static_cast<float>(high));
      const auto slot = static_cast<std::size_t>(c / group * kPageTokens + t);
      ASSERT_EQ(block.scale[slot], grid.scale);
      ASSERT_EQ(block.min[slot], grid.min);
    }
  }
  for (std::size_t i = 0; i < block.scale.size(); ++i) {
    ASSERT_TRUE(all_finite(&block.scale[i], 1) && all_finite(&block.min[i], 1)) << "slot " << i << " was not written";
  }
}

TEST(BlockCoder, ValuesFollowTheRule) {
  const Kernels* kernels = *simd::select_kernels();
  for (const int channels : kChannels) {
    for (const int tokens : kTokenCounts) {
      for (const int rotate : {0, 1}) {
        SCOPED_TRACE(testing::Message() << kernels->name << ", " << channels << " channels, " << tokens
                                        << " tokens, rotate " << rotate);
        expect_values_coded(*kernels, channels, tokens, 128, rotate);
        if (tokens == 33 || tokens == 128) expect_values_coded(*kernels, channels, tokens, 32, rotate);
        if (tokens == 128) expect_values_coded(*kernels, channels, tokens, 64, rotate);
      }
    }
  }
}

// All instruction sets make the same bytes.
TEST(BlockCoder, EveryIsaMakesTheSameBytes) {
  for (const int channels : kChannels) {
    const int tokens = 128 - channels % 5;
    const std::vector<std::uint16_t> x = make_numbers(tokens, channels, 14);
    std::vector<std::vector<std::uint8_t>> all;
    for (const Kernels* kernels : simd::running_kernels()) {
      BlockCoder coder(*kernels, channels);
      const KeyLayout keys = shuffled(channels, 15);
      const ValueLayout values = value_layout(channels, 8, 128, 1);
      Block k(keys.code_bytes, key_scale_bytes(channels, 0)), v(values.code_bytes, value_scale_bytes(channels, 128));
      NotFinite where;
      ASSERT_EQ(coder.code_keys(x.data(), tokens, keys, k.codes.data(), k.scales(), &where), CodeResult::kDone);
      ASSERT_EQ(coder.code_values(x.data(), tokens, values, v.codes.data(), v.scales(), &where), CodeResult::kDone);
      std::vector<std::uint8_t> bytes = k.codes.copy();
      const auto append = [&](const void* from, std::size_t n) {
        bytes.insert(bytes.end(), static_cast<const std::uint8_t*>(from), static_cast<const std::uint8_t*>(from) + n);
      };
      append(v.codes.data(), v.codes.size());
      for (const auto* halves : {&k.scale, &k.min, &v.scale, &v.min}) append(halves->data(), halves->size() * 2);
      all.push_back(std::move(bytes));
      EXPECT_EQ(all.back(), all.front()) << kernels->name << ", " << channels << " channels";
    }
  }
}

TEST(BlockCoder, NamesTheFirstNumberThatIsNotFinite) {
  const Kernels* kernels = *simd::select_kernels();
  for (const int channels : {1, 3, 64, 80, 576}) {
    const int tokens = 33;
    BlockCoder coder(*kernels, channels);
    for (const int token : {0, 7, 32}) {
      for (const int channel : {0, channels / 2, channels - 1}) {
        for (const std::uint16_t bad : {0x7c00, 0xfc00, 0x7e00, 0xffff}) {
          std::vector<std::uint16_t> x = make_numbers(tokens, channels, 16);
          x[static_cast<std::size_t>(token * channels + channel)] = bad;
          x.back() = bad;  // a later one must not be named instead
          Block block(key_code_bytes(channels, 8),
                      std::max(key_scale_bytes(channels, 0), value_scale_bytes(channels, 32)));
          NotFinite where;
          ASSERT_EQ(coder.code_keys(x.data(), tokens, uniform_key_layout(channels, 8, 0), block.codes.data(),
                                    block.scales(), &where),
                    CodeResult::kNotFinite);
          EXPECT_EQ(where.token, token);
          EXPECT_EQ(where.channel, channel);
          where = {};
          ASSERT_EQ(coder.code_values(x.data(), tokens, value_layout(channels, 8, 32, 1), block.codes.data(),
                                      block.scales(), &where),
                    CodeResult::kNotFinite);
          EXPECT_EQ(where.token, token);
          EXPECT_EQ(where.channel, channel);
        }
      }
    }
  }
}

// Finite numbers whose rotation does not fit into f16 are refused with the token, not stored as infinity.
TEST(BlockCoder, NamesTheTokenWhoseRotationOverflows) {
  constexpr int kWidth = 64, kCount = 9;
  const Kernels* kernels = *simd::select_kernels();
  std::vector<std::uint16_t> x = make_numbers(kCount, kWidth, 17);
  for (int c = 0; c < kWidth; ++c) x[static_cast<std::size_t>(5 * kWidth + c)] = f16_from_f32(-60000.f);
  BlockCoder coder(*kernels, kWidth);
  const ValueLayout layout = value_layout(kWidth, 8, 128, 1);
  Block block(layout.code_bytes, value_scale_bytes(kWidth, 128));
  NotFinite where;
  ASSERT_EQ(coder.code_values(x.data(), kCount, layout, block.codes.data(), block.scales(), &where),
            CodeResult::kNotFinite);
  EXPECT_EQ(where.token, 5);
}

}  // namespace
}  // namespace neve::quant
