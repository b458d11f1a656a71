// What a cache is made of, in bytes, against sums written by hand.
#include "kv/shape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv/small_cache.h"

namespace neve::kv {
namespace {

constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;

CacheOptions options_for(const std::string& spec, std::uint64_t budget = 0) {
  return options_of(spec, 1 << 20, budget, 64);
}

Shape shape_of(const std::vector<LayerGeometry>& layers, const CacheOptions& options) {
  Result<Shape> shape = Shape::create(layers, options);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return std::move(shape).value();
}

std::uint64_t f16_of(const std::vector<LayerGeometry>& layers, const std::string& spec, std::int64_t tokens,
                     int sequences) {
  const CacheOptions options = options_for(spec);
  return f16_bytes(shape_of(layers, options), options, tokens, sequences);
}

// Case 8: 16 attention layers of 4 heads of 256 at 262 144 tokens are 16 384.00 MiB. Sinks stand beside the page grid:
// with 4 of them the last page is not quite full, which costs the bytes of 4 tokens.
TEST(Shape, ByteOracleOfCase8) {
  const auto layers = layers_of(16, 16, 4, 256, 256);
  EXPECT_EQ(f16_of(layers, "f16:sinks=0", 262144, 1), 16384 * kMiB);
  EXPECT_EQ(f16_of(layers, "f16", 262144, 1), 16384 * kMiB + 4 * 65536u);
  EXPECT_EQ(f16_of(layers, "f16", 262144 - 124, 1), 16384 * kMiB - 124 * 65536u) << "sinks and whole pages: no padding";
}

TEST(Shape, ByteOracleOfKnownModels) {
  const auto llama8 = layers_of(32, 32, 8, 128, 128), qwen32 = layers_of(64, 40, 8, 128, 128),
             llama70 = layers_of(80, 64, 8, 128, 128);
  EXPECT_EQ(f16_of(llama8, "f16:sinks=0", 32768, 16), 64 * kGiB);
  EXPECT_EQ(f16_of(qwen32, "f16:sinks=0", 32768, 16), 128 * kGiB);
  EXPECT_EQ(f16_of(llama70, "f16:sinks=0", 32768, 16), 160 * kGiB);
  EXPECT_EQ(f16_of(llama8, "f16:sinks=0", 1024, 1), 128 * kMiB);
  EXPECT_EQ(f16_of(llama70, "f16:sinks=0", 1024, 1), 320 * kMiB);
  // With the default 4 sinks a length that is a multiple of 128 holds one page more, less 124 tokens of it unused.
  EXPECT_EQ(f16_of(llama8, "f16", 1024, 1), 128 * kMiB + 4 * 131072u);
}

// pages.md section 4: the least budgets of SmolLM2-135M, plus one spare top block.
TEST(Shape, LeastBudgetsOfSmolLM2) {
  const auto layers = layers_of(30, 9, 3, 64, 64);
  const CacheOptions options = options_for("auto", 1);
  const Shape shape = shape_of(layers, options);
  const std::uint64_t spare = 64 * 128 * 2;
  EXPECT_EQ(least_bytes(shape, options, 640, 1), 7303680 + spare);
  EXPECT_EQ(least_bytes(shape, options, 8192, 1), 33131520 + spare);
}

// Bytes of every block by hand: codes in halves, quarters and eighths, scales beside them.
TEST(Shape, BlocksOfTheLadder) {
  for (const int dim : {1, 3, 64, 66, 80, 96, 100, 128, 192, 256, 576}) {
    const std::uint64_t padded = static_cast<std::uint64_t>((dim + 3) / 4 * 4);
    const std::uint64_t top = padded * 128 * 2;
    const std::uint64_t groups = static_cast<std::uint64_t>((dim + 127) / 128);
    for (const char* text : {"auto", "pm:2"}) {
      const Shape shape = shape_of(layers_of(1, 1, 1, dim, dim), options_for(text, text[0] == 'a' ? 1 : 0));
      const StoredLayer& layer = shape.stored[0];
      ASSERT_EQ(shape.levels.size(), 4u);
      const std::uint64_t key_scales = text[0] == 'a' ? padded * 4 : groups * 128 * 4, value_scales = groups * 128 * 4;
      EXPECT_EQ(shape.block_bytes(layer, kKey, 0), top);
      EXPECT_EQ(shape.block_bytes(layer, kValue, 0), top);
      for (int level = 1; level <= 3; ++level) {
        EXPECT_EQ(shape.block_bytes(layer, kKey, level), (top >> level) + key_scales) << text << " " << dim;
        EXPECT_EQ(shape.block_bytes(layer, kValue, level), (top >> level) + value_scales) << text << " " << dim;
      }
    }
  }
}

TEST(Shape, BlocksOfFixedWidths) {
  for (const int dim : {1, 3, 64, 66, 100, 128, 576}) {
    const std::uint64_t padded = static_cast<std::uint64_t>((dim + 3) / 4 * 4);
    const std::uint64_t groups = static_cast<std::uint64_t>((dim + 127) / 128);
    for (const int bits : {8, 4, 2}) {
      const Shape shape = shape_of(layers_of(1, 1, 1, dim, dim), options_for("int" + std::to_string(bits)));
      const std::uint64_t codes = padded * 128 * static_cast<std::uint64_t>(bits) / 8;
      EXPECT_EQ(shape.block_bytes(shape.stored[0], kKey, 1), codes + padded * 4);
      EXPECT_EQ(shape.block_bytes(shape.stored[0], kValue, 1), codes + groups * 128 * 4);
    }
    // graded:3 = keys of 4, values of 2 bits; graded:2.5 = keys of 3, values of 2, whole bits of quads.
    const Shape three = shape_of(layers_of(1, 1, 1, dim, dim), options_for("graded:3"));
    EXPECT_EQ(three.block_bytes(three.stored[0], kKey, 1), padded * 64 + padded * 4);
    EXPECT_EQ(three.block_bytes(three.stored[0], kValue, 1), padded * 32 + groups * 128 * 4);
    const Shape half = shape_of(layers_of(1, 1, 1, dim, dim), options_for("graded:2.5"));
    EXPECT_EQ(half.block_bytes(half.stored[0], kKey, 1), padded / 4 * 3 / 2 * 2 * 64 + padded * 4);
  }
}

TEST(Shape, MeansOfGradedWidths) {
  for (const double width : {2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 6.5, 7.0, 8.0}) {
    const GradedWidths split = split_width(width);
    EXPECT_EQ((split.keys + split.values) / 2, width);
    EXPECT_LE(split.keys, 8);
    if (width > 6 && width < 8) continue;  // no values between 4 and 8 bits: there they have more than the keys
    EXPECT_GE(split.keys, split.values) << "keys carry the damage";
  }
  EXPECT_EQ(split_width(4).values, 4);
  EXPECT_EQ(split_width(3).values, 2);
  EXPECT_EQ(split_width(2).keys, 2);
}

// Mixed head sizes, a sliding window, a layer that shares, MQA: each counted once, by its own size.
TEST(Shape, MixedGeometries) {
  std::vector<LayerGeometry> layers = layers_of(1, 8, 1, 576, 512);
  layers.push_back(layers_of(1, 12, 4, 128, 128)[0]);
  layers[1].sliding_window = 1024;
  layers.push_back(layers_of(1, 6, 3, 64, 96)[0]);
  layers.push_back(layers[2]);
  layers[3].query_heads = 9;
  layers[3].shares_layer = 2;
  EXPECT_EQ(f16_of(layers, "f16:sinks=0", 128, 1), 256u * (576 + 512) + 256u * 4 * 256 + 256u * 3 * 160);
  const CacheOptions options = options_for("f16:sinks=0,window=0");
  const Shape shape = shape_of(layers, options);
  EXPECT_EQ(shape.stored.size(), 3u);
  EXPECT_EQ(shape.heads, 1 + 4 + 3);
  EXPECT_EQ(shape.stored_of, (std::vector<int>{0, 1, 2, 2}));
  // A window of 8 pages: at most 9 pages are held, however long the sequence.
  const std::uint64_t per_token = 2u * (576 + 512) + 2u * 3 * 160, windowed = 2u * 4 * 256;
  EXPECT_EQ(f16_bytes(shape, options, 12800, 1), 12800 * per_token + 9 * 128 * windowed);
  EXPECT_EQ(f16_bytes(shape, options, 12800, 3), 3 * f16_bytes(shape, options, 12800, 1));
}

TEST(Shape, OneSparePerGeometry) {
  std::vector<LayerGeometry> layers = layers_of(2, 4, 2, 64, 64);
  layers[1].value_dim = 128;
  const Shape shape = shape_of(layers, options_for("auto", 1));
  ASSERT_EQ(shape.pools.size(), 2u);  // 64 and 128 channels
  for (const PoolShape& pool : shape.pools) EXPECT_TRUE(pool.has_spare);
  const CacheOptions options = options_for("auto", 1);
  EXPECT_EQ(least_bytes(shape, options, 1, 1), shape.sink_bytes(4) + 64 * 256 + 128 * 256);
  for (const PoolShape& pool : shape_of(layers, options_for("auto")).pools) EXPECT_FALSE(pool.has_spare);
  for (const PoolShape& pool : shape_of(layers, options_for("f16")).pools) EXPECT_FALSE(pool.has_spare);
}

void expect_refused(const std::vector<LayerGeometry>& layers, const std::vector<std::string>& names) {
  const Result<Shape> shape = Shape::create(layers, options_for("auto"));
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.status().code(), Code::kInvalidArgument);
  for (const std::string& name : names) {
    EXPECT_NE(shape.status().message().find(name), std::string::npos) << shape.status().message();
  }
}

TEST(Shape, WrongGeometriesNameLayerAndNumbers) {
  expect_refused({}, {"at least one"});
  expect_refused(layers_of(1, 8, 3, 64, 64), {"layer 0", "8", "3"});
  expect_refused(layers_of(1, 0, 0, 64, 64), {"layer 0"});
  expect_refused(layers_of(1, -4, -2, 64, 64), {"layer 0"});
  expect_refused(layers_of(1, 8, 2, 577, 64), {"layer 0", "576", "577"});
  expect_refused(layers_of(1, 8, 2, 64, 0), {"layer 0", "head size", "0"});
  std::vector<LayerGeometry> layers = layers_of(3, 8, 2, 64, 64);
  layers[2].shares_layer = 2;
  expect_refused(layers, {"layer 2", "earlier"});
  layers[2].shares_layer = 0;
  layers[2].value_dim = 32;
  expect_refused(layers, {"layer 2", "layer 0"});
  layers[2].value_dim = 64;
  layers[2].sliding_window = 100;
  expect_refused(layers, {"layer 2", "layer 0"});
  layers[2].sliding_window = -1;
  expect_refused(layers, {"layer 2", "-1"});
  layers[2] = layers[0];
  layers[1].shares_layer = 0;
  layers[2].shares_layer = 1;
  expect_refused(layers, {"layer 2"});
}

TEST(Shape, WrongSpecsNameTheNumbers) {
  const auto refused = [](const auto& change, const std::string& name) {
    CacheOptions options = options_for("auto");
    change(&options.spec);
    const Result<Shape> shape = Shape::create(layers_of(1, 1, 1, 64, 64), options);
    ASSERT_FALSE(shape.ok()) << name;
    EXPECT_EQ(shape.status().code(), Code::kInvalidArgument);
    EXPECT_NE(shape.status().message().find(name), std::string::npos) << shape.status().message();
  };
  refused([](KvSpec* spec) { spec->sinks = 129; }, "129");
  refused([](KvSpec* spec) { spec->sinks = -1; }, "-1");
  refused([](KvSpec* spec) { spec->window = -2; }, "-2");
  refused([](KvSpec* spec) { spec->group = 6; }, "6");
  refused([](KvSpec* spec) { spec->group = 0; }, "groups");
  refused([](KvSpec* spec) { spec->clip = 1.5; }, "1.5");
}

TEST(Shape, PeersAreRefused) {
  const Result<Shape> shape = Shape::create(layers_of(1, 1, 1, 64, 64), options_for("llama:f16"));
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.status().code(), Code::kUnsupported);
  EXPECT_NE(shape.status().message().find("llama:f16"), std::string::npos);
}

TEST(Shape, ColumnsOfLengths) {
  KvSpec spec;
  for (const auto& [tokens, columns] :
       {std::pair{0, 0}, {1, 0}, {4, 0}, {5, 1}, {132, 1}, {133, 2}, {260, 2}, {261, 3}}) {
    EXPECT_EQ(columns_of(spec, tokens), columns) << tokens;
  }
}

}  // namespace
}  // namespace neve::kv
