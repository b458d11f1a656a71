// Codes that become narrower inside blocks: demoted = direct, means of quads that lose all bits, exact numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/float16.h"
#include "quant/block_coder.h"
#include "quant/code_reader.h"
#include "simd/test_support.h"

namespace neve::quant {
namespace {

using Random = std::mt19937_64;
using simd::Kernels;

struct Block {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scale, min;
  BlockScales scales() { return {scale.data(), min.data()}; }
};

std::vector<std::uint16_t> halves(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = f16_from_f32(normal(random) * 3.f + static_cast<float>(i % 5));
  return x;
}

Block code_keys(const Kernels& kernels, const std::vector<std::uint16_t>& x, int tokens, const KeyLayout& layout) {
  const std::size_t slots = key_scale_bytes(layout.channels, 0) / 4;
  Block block = {std::vector<std::uint8_t>(key_code_bytes(layout.channels, 8)), std::vector<std::uint16_t>(slots),
                 std::vector<std::uint16_t>(slots)};
  NotFinite where;
  BlockCoder coder(kernels, layout.channels);
  EXPECT_EQ(coder.code_keys(x.data(), tokens, layout, block.codes.data(), block.scales(), &where), CodeResult::kDone);
  return block;
}

Block narrow(const Kernels& kernels, const Block& from, const KeyLayout& from_layout, const KeyLayout& to_layout,
             int tokens, Shift shift, float clip) {
  Block to = from;
  to.codes.assign(to_layout.code_bytes, 0);
  BlockCoder coder(kernels, from_layout.channels);
  coder.narrow_keys(from_layout, from.codes.data(), to_layout, to.codes.data(), tokens, shift, clip, to.scales());
  return to;
}

std::vector<std::uint16_t> some_order(int channels, std::uint64_t seed) {
  std::vector<std::uint16_t> order(static_cast<std::size_t>(channels));
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  Random random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

constexpr Shift kShifts[] = {Shift::kEquivalent, Shift::kDirect, Shift::kModified, Shift::kClipped};

// Every quad's codes follow from its 8-bit codes by integer rules, through every width it had.
int narrow_once(int q, int to_bits, Shift shift) {
  if (to_bits == 4) {
    return shift == Shift::kDirect ? q >> 4 : shift == Shift::kModified ? std::min((q + 8) >> 4, 15) : (q + 8) / 17;
  }
  if (shift == Shift::kDirect) return q >> 2;
  if (shift == Shift::kModified) return std::min((q + 2) >> 2, 3);
  if (shift == Shift::kEquivalent) return (q + 2) / 5;
  return q < 4 ? 0 : q < 8 ? 1 : q < 12 ? 2 : 3;  // clipped with c = 0.8: thresholds 3.5, 7.5, 11.5
}

TEST(Narrowing, GradedKeysFollowTheRulesThroughEveryWidth) {
  Random random(21);
  const Kernels* kernels = *simd::select_kernels();
  for (const int channels : {1, 3, 64, 66, 100, 128, 576}) {
    const int quads = padded_channels(channels) / 4;
    for (const Shift shift : kShifts) {
      for (const int tokens : {1, 7, 128}) {
        const std::vector<std::uint16_t> x = halves(static_cast<std::size_t>(tokens * channels), 22);
        const std::vector<std::uint16_t> order = some_order(channels, 23);
        const KeyLayout first = graded_key_layout(channels, order, {quads, 0, 0});
        // 8 | 8 4 | 8 4 2 0 | 4 2 0: quads stay, halve, fall from 8 to 2, and to nothing.
        const int a = static_cast<int>(random() % static_cast<unsigned>(quads + 1));
        const int b = static_cast<int>(random() % static_cast<unsigned>(quads - a + 1));
        const KeyLayout second = graded_key_layout(channels, order, {a, quads - a, 0});
        const KeyLayout third = graded_key_layout(channels, order, {a / 2, a - a / 2, b});
        const KeyLayout fourth = graded_key_layout(channels, order, {0, a / 2, (a - a / 2) / 2});
        const Block b8 = code_keys(*kernels, x, tokens, first);
        const Block b2 = narrow(*kernels, b8, first, second, tokens, shift, 0.8f);
        const Block b3 = narrow(*kernels, b2, second, third, tokens, shift, 0.8f);
        const Block b4 = narrow(*kernels, b3, third, fourth, tokens, shift, 0.8f);
        SCOPED_TRACE(testing::Message() << kernels->name << ", " << channels << " channels, " << tokens << " tokens");
        const struct {
          const Block& block;
          const KeyLayout& layout;
        } stages[] = {{b8, first}, {b2, second}, {b3, third}, {b4, fourth}};
        for (int c = 0; c < channels; ++c) {
          std::vector<int> codes(static_cast<std::size_t>(tokens));
          int bits = 8;
          bool gone = false;
          std::uint16_t mean = 0;
          for (const auto& stage : stages) {
            const auto run = std::find_if(stage.layout.runs.begin(), stage.layout.runs.end(), [&](const KeyRun& r) {
              return c / 4 >= r.first_quad && c / 4 < r.first_quad + r.quads;
            });
            const auto slot = static_cast<std::size_t>(c);
            if (run->bits == 0) {
              if (!gone) {
                const double sum = std::accumulate(codes.begin(), codes.end(), 0.0);
                const double want =
                    number_of_code(0, bits, shift, 0.8, half_at(b8.scale.data(), c), half_at(b8.min.data(), c));
                const double step =
                    number_of_code(1, bits, shift, 0.8, half_at(b8.scale.data(), c), half_at(b8.min.data(), c)) - want;
                const double got = half_at(stage.block.min.data(), c);
                ASSERT_NEAR(got, want + step * sum / tokens, std::fabs(got) / 2000 + 1e-6) << "channel " << c;
                mean = stage.block.min[slot];
                gone = true;
              }
              ASSERT_EQ(stage.block.min[slot], mean) << "a mean is written once";
              ASSERT_EQ(stage.block.scale[slot], 0);
              continue;
            }
            ASSERT_EQ(stage.block.scale[slot], b8.scale[slot]) << "scales are never rewritten";
            ASSERT_EQ(stage.block.min[slot], b8.min[slot]);
            for (int t = 0; t < tokens; ++t) {
              int& q = codes[static_cast<std::size_t>(t)];
              if (bits == 8 && run->bits == 8) q = key_code(stage.block.codes.data(), *run, c, t);
              if (bits == 8 && run->bits < 8) q = narrow_once(q, 4, shift);
              if (bits >= 4 && run->bits == 2) q = narrow_once(q, 2, shift);
              ASSERT_EQ(key_code(stage.block.codes.data(), *run, c, t), q) << "channel " << c << ", token " << t;
            }
            bits = run->bits;
          }
        }
      }
    }
  }
}

TEST(Narrowing, KeysFrom8To2GoThrough4) {
  const Kernels* kernels = *simd::select_kernels();
  for (const Shift shift : kShifts) {
    for (const int group : {0, 32}) {
      const int channels = 96, tokens = 128;
      const KeyLayout l8 = uniform_key_layout(channels, 8, group), l4 = uniform_key_layout(channels, 4, group),
                      l2 = uniform_key_layout(channels, 2, group);
      const std::vector<std::uint16_t> x = halves(static_cast<std::size_t>(tokens * channels), 24);
      const std::size_t slots = key_scale_bytes(channels, group) / 4;
      Block b8 = {std::vector<std::uint8_t>(l8.code_bytes), std::vector<std::uint16_t>(slots),
                  std::vector<std::uint16_t>(slots)};
      NotFinite where;
      BlockCoder coder(*kernels, channels);
      ASSERT_EQ(coder.code_keys(x.data(), tokens, l8, b8.codes.data(), b8.scales(), &where), CodeResult::kDone);
      const Block direct = narrow(*kernels, b8, l8, l2, tokens, shift, 0.8f);
      const Block steps =
          narrow(*kernels, narrow(*kernels, b8, l8, l4, tokens, shift, 0.8f), l4, l2, tokens, shift, 0.8f);
      EXPECT_EQ(direct.codes, steps.codes);
      EXPECT_EQ(direct.scale, b8.scale);
      EXPECT_EQ(direct.min, b8.min);
    }
  }
}

TEST(Narrowing, ValuesFollowTheRules) {
  const Kernels* kernels = *simd::select_kernels();
  for (const int channels : {1, 3, 64, 66, 100, 192, 576}) {
    for (const Shift shift : kShifts) {
      for (const int group : {32, 128}) {
        const int tokens = 128;
        SCOPED_TRACE(testing::Message() << kernels->name << ", " << channels << " channels, groups of " << group);
        const std::vector<std::uint16_t> x = halves(static_cast<std::size_t>(tokens * channels), 25);
        const ValueLayout l8 = value_layout(channels, 8, group, 1), l4 = value_layout(channels, 4, group, 1),
                          l2 = value_layout(channels, 2, group, 1);
        std::vector<std::uint8_t> c8(l8.code_bytes), c4(l4.code_bytes), c2(l2.code_bytes), direct(l2.code_bytes);
        std::vector<std::uint16_t> scale(value_scale_bytes(channels, group) / 4), min(scale.size());
        NotFinite where;
        BlockCoder coder(*kernels, channels);
        ASSERT_EQ(coder.code_values(x.data(), tokens, l8, c8.data(), {scale.data(), min.data()}, &where),
                  CodeResult::kDone);
        coder.narrow_values(l8, c8.data(), l4, c4.data(), shift, 0.8f);
        coder.narrow_values(l4, c4.data(), l2, c2.data(), shift, 0.8f);
        coder.narrow_values(l8, c8.data(), l2, direct.data(), shift, 0.8f);
        EXPECT_EQ(c2, direct);
        for (int c = 0; c < channels; ++c) {
          for (int t = 0; t < tokens; ++t) {
            const int q8 = value_code(c8.data(), l8, c, t), q4 = narrow_once(q8, 4, shift);
            ASSERT_EQ(value_code(c4.data(), l4, c, t), q4);
            ASSERT_EQ(value_code(c2.data(), l2, c, t), narrow_once(q4, 2, shift));
          }
        }
      }
    }
  }
}

// Numbers that lie on a grid come back exactly, whatever their code: 0, 1, 2 ... 255; multiples of 17; of 85.
TEST(Narrowing, EveryCodeOfEveryWidthComesBack) {
  const Kernels* kernels = *simd::select_kernels();
  const int channels = 32, tokens = 128;
  for (const int bits : {8, 4, 2}) {
    const int most = (1 << bits) - 1, step = 255 / most;
    std::vector<std::uint16_t> x(static_cast<std::size_t>(tokens * channels));
    std::vector<bool> used(256, false);
    for (int t = 0; t < tokens; ++t) {
      for (int c = 0; c < channels; ++c) {
        // Every token and every channel has the lowest and the highest number, so both kinds of groups have scale 1.
        const int code = (t + c) % 16 == 0 ? 0 : (t + c) % 16 == 1 ? most : (t * 2 + c * 37) % (most + 1);
        used[static_cast<std::size_t>(code)] = true;
        x[static_cast<std::size_t>(t * channels + c)] = f16_from_f32(static_cast<float>(code * step));
      }
    }
    EXPECT_EQ(std::count(used.begin(), used.end(), true), most + 1);
    const KeyLayout k8 = uniform_key_layout(channels, 8, 0), k = uniform_key_layout(channels, bits, 0);
    const Block block = narrow(*kernels, code_keys(*kernels, x, tokens, k8), k8, k, tokens, Shift::kEquivalent, 1.f);
    const std::vector<double> keys =
        read_keys(block.codes.data(), k, block.scale.data(), block.min.data(), tokens, Shift::kEquivalent, 1);
    const ValueLayout v8 = value_layout(channels, 8, 128, 0), v = value_layout(channels, bits, 128, 0);
    std::vector<std::uint8_t> c8(v8.code_bytes), codes(v.code_bytes);
    std::vector<std::uint16_t> scale(128), min(128);
    NotFinite where;
    BlockCoder coder(*kernels, channels);
    ASSERT_EQ(coder.code_values(x.data(), tokens, v8, c8.data(), {scale.data(), min.data()}, &where),
              CodeResult::kDone);
    coder.narrow_values(v8, c8.data(), v, codes.data(), Shift::kEquivalent, 1.f);
    const std::vector<double> values =
        read_values(codes.data(), v, scale.data(), min.data(), tokens, Shift::kEquivalent, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(keys[i], half_at(x.data(), static_cast<std::ptrdiff_t>(i))) << bits << " bits";
      ASSERT_EQ(values[i], keys[i]) << bits << " bits";
    }
  }
}

}  // namespace
}  // namespace neve::quant
