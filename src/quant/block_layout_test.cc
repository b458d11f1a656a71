#include "quant/block_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <tuple>
#include <vector>

namespace neve::quant {
namespace {

constexpr int kChannels[] = {1, 2, 3, 4, 5, 64, 66, 80, 96, 100, 128, 192, 256, 576};

// Runs must tile the quads 0 .. n - 1 and the bytes 0 .. code_bytes, in order, without a gap.
void expect_tiled(const KeyLayout& layout) {
  int quad = 0;
  std::size_t byte = 0;
  for (const KeyRun& run : layout.runs) {
    ASSERT_EQ(run.first_quad, quad);
    ASSERT_EQ(run.offset, byte);
    ASSERT_GT(run.quads, 0);
    quad += run.quads;
    byte += static_cast<std::size_t>(run.quads) * 64 * static_cast<std::size_t>(run.bits);  // 4 * 128 * bits / 8
  }
  ASSERT_EQ(quad * 4, padded_channels(layout.channels));
  ASSERT_EQ(byte, layout.code_bytes);
}

TEST(BlockLayout, Padding) {
  for (int channels = 1; channels <= 576; ++channels) {
    const int padded = padded_channels(channels);
    EXPECT_EQ(padded % 4, 0);
    EXPECT_GE(padded, channels);
    EXPECT_LT(padded, channels + 4);
  }
}

TEST(BlockLayout, UniformKeys) {
  for (const int channels : kChannels) {
    for (const int bits : {8, 4, 2}) {
      for (const int group : {0, 4, 32, 64, 100, 128}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << bits << " bits, groups of " << group);
        const KeyLayout layout = uniform_key_layout(channels, bits, group);
        expect_tiled(layout);
        EXPECT_EQ(layout.channels, channels);
        EXPECT_EQ(layout.code_bytes, static_cast<std::size_t>(padded_channels(channels) * 128 * bits / 8));
        EXPECT_EQ(layout.code_bytes, key_code_bytes(channels, bits));
        EXPECT_TRUE(layout.order.empty());
        for (const KeyRun& run : layout.runs) EXPECT_EQ(run.bits, bits);
        if (group == 0) {
          EXPECT_EQ(layout.groups, 0);
          EXPECT_EQ(key_scale_bytes(channels, group), static_cast<std::size_t>(padded_channels(channels)) * 4);
          continue;
        }
        EXPECT_EQ(layout.groups, (channels + group - 1) / group);
        ASSERT_EQ(static_cast<int>(layout.runs.size()), layout.groups);
        for (int g = 0; g < layout.groups; ++g) {
          const KeyRun& run = layout.runs[static_cast<std::size_t>(g)];
          EXPECT_EQ(run.group, g);
          EXPECT_EQ(run.first_quad * 4, g * group);
          EXPECT_LE(run.quads * 4, group);
        }
        EXPECT_EQ(key_scale_bytes(channels, group), static_cast<std::size_t>(layout.groups) * 128 * 4);
      }
    }
  }
}

TEST(BlockLayout, GradedKeys) {
  std::mt19937_64 random(8);
  for (const int channels : kChannels) {
    const int quads = padded_channels(channels) / 4;
    for (int trial = 0; trial < 20; ++trial) {
      QuadWidths widths;
      widths.at8 = static_cast<int>(random() % static_cast<unsigned>(quads + 1));
      widths.at4 = static_cast<int>(random() % static_cast<unsigned>(quads - widths.at8 + 1));
      widths.at2 = static_cast<int>(random() % static_cast<unsigned>(quads - widths.at8 - widths.at4 + 1));
      std::vector<std::uint16_t> order(static_cast<std::size_t>(channels));
      std::iota(order.begin(), order.end(), std::uint16_t{0});
      const KeyLayout layout = graded_key_layout(channels, order, widths);
      expect_tiled(layout);
      EXPECT_EQ(layout.order, order);
      EXPECT_EQ(layout.code_bytes, static_cast<std::size_t>((widths.at8 * 8 + widths.at4 * 4 + widths.at2 * 2) * 64));
      ASSERT_LE(layout.runs.size(), 4u);
      for (std::size_t i = 1; i < layout.runs.size(); ++i) {
        EXPECT_LT(layout.runs[i].bits, layout.runs[i - 1].bits) << "runs of equal width are contiguous";
      }
    }
  }
}

TEST(BlockLayout, Values) {
  for (const int channels : kChannels) {
    for (const int bits : {8, 4, 2}) {
      for (const int group : {4, 32, 64, 100, 128}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << bits << " bits, groups of " << group);
        const ValueLayout layout = value_layout(channels, bits, group, 0);
        EXPECT_EQ(layout.rotated, 0);
        EXPECT_EQ(layout.code_bytes, static_cast<std::size_t>(padded_channels(channels) * 128 * bits / 8));
        EXPECT_EQ(layout.row_bytes, static_cast<std::size_t>(padded_channels(channels)) * 4);
        int channel = 0;
        for (const ValueRun& run : layout.runs) {
          EXPECT_EQ(run.first_channel, channel);
          EXPECT_GT(run.channels, 0);
          EXPECT_LE(run.channels, group);
          EXPECT_EQ(run.channels % 4, 0);
          channel += run.channels;
        }
        EXPECT_EQ(channel, padded_channels(channels));
        EXPECT_EQ(value_scale_bytes(channels, group), layout.runs.size() * 128 * 4);
      }
    }
  }
}

// Rotation goes over the largest power of two that divides the head size, and is not done below 16.
TEST(BlockLayout, RotationBySize) {
  using Case = std::tuple<int, int>;
  for (const auto& [channels, rotated] :
       {Case{16, 16}, Case{48, 16}, Case{64, 64}, Case{80, 16}, Case{96, 32}, Case{128, 128}, Case{192, 64},
        Case{256, 256}, Case{576, 64}, Case{1, 0}, Case{3, 0}, Case{8, 0}, Case{66, 0}, Case{72, 0}, Case{100, 0}}) {
    EXPECT_EQ(value_layout(channels, 8, 128, 1).rotated, rotated) << channels;
    EXPECT_EQ(value_layout(channels, 8, 128, 0).rotated, 0) << channels;
  }
}

}  // namespace
}  // namespace neve::quant
