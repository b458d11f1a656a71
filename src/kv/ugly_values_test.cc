// Numbers that are none: where nothing may read them they must not show, where they are given they are refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kv/held_blocks.h"
#include "kv/small_cache.h"

namespace neve::kv {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint16_t kHalfNan = 0x7e00;

const std::vector<LayerGeometry>& small_layers() {
  static const std::vector<LayerGeometry> layers = layers_of(3, 6, 2, 36, 20);
  return layers;
}

// Everything in the sequence's blocks that no token stands on becomes NaN: rows of the open page beyond its tokens,
// scales of tokens beyond a closed page's count.
void poison(KvCache::Impl& impl, int sequence) {
  for_each_page(impl, sequence, [&](const Column& column, const StoredLayer& layer, int, PageId, Page& page) {
    for (const Kind kind : {kKey, kValue}) {
      const Stand& stand = page.now[kind];
      if (stand.level == 0) {
        auto* rows = reinterpret_cast<std::uint16_t*>(impl.storage.codes(page, kind, stand));
        std::fill(rows + column.tokens * layer.dim[kind], rows + kPageTokens * layer.dim[kind], kHalfNan);
      }
    }
  });
}

// Case 4: 0 * NaN is NaN, so what lies beyond the length must not even be multiplied.
TEST(UglyValues, BeyondTheLengthNothingIsRead) {
  for (const char* spec : {"f16", "int8", "int4", "graded:3", "pm:2"}) {
    SCOPED_TRACE(spec);
    CacheRunner clean = runner_of(small_layers(), options_of(spec, 700)),
                dirty = runner_of(small_layers(), options_of(spec, 700));
    const int a = clean.add(61), b = dirty.add(61);
    for (const std::int64_t at : {1, 5, 100, 131, 140, 300, 388, 500}) {
      ASSERT_TRUE(clean.fill_to(a, at).ok());
      ASSERT_TRUE(dirty.fill_to(b, at).ok());
      poison(dirty.impl(), b);
      for (const int tokens : {1, 4, 9}) {
        ASSERT_TRUE(clean.step({{a, tokens}}).ok());
        ASSERT_TRUE(dirty.step({{b, tokens}}).ok());
        for (int layer = 0; layer < 3; ++layer) {
          for (const float x : dirty.out(layer)) ASSERT_TRUE(std::isfinite(x));
          ASSERT_EQ(clean.out(layer), dirty.out(layer)) << at << " tokens, layer " << layer;
        }
      }
    }
    EXPECT_EQ(difference(held_blocks(clean.impl(), a), held_blocks(dirty.impl(), b)), "");
  }
}

// Case 11: what was coded is read from its codes. The 16-bit blocks it came from are filled with NaN before they are freed,
// and with them every block that is free.
TEST(UglyValues, PoisonedOriginalsDoNotShow) {
  for (const char* spec : {"int8", "int4", "graded:3", "pm:4"}) {
    SCOPED_TRACE(spec);
    CacheRunner clean = runner_of(small_layers(), options_of(spec, 900)),
                dirty = runner_of(small_layers(), options_of(spec, 900));
    const int a = clean.add(62), b = dirty.add(62);
    std::vector<std::pair<std::uint16_t*, std::size_t>> originals;
    for (const std::int64_t at : {132, 259, 260, 387, 388, 515, 516, 700}) {
      originals.clear();
      // Blocks that stand at 16 bit now; those that are coded by the next boundary are the originals.
      for_each_page(dirty.impl(), b, [&](const Column&, const StoredLayer& layer, int, PageId, Page& page) {
        for (const Kind kind : {kKey, kValue}) {
          if (page.now[kind].level != 0) continue;
          originals.emplace_back(
              reinterpret_cast<std::uint16_t*>(dirty.impl().storage.codes(page, kind, page.now[kind])),
              static_cast<std::size_t>(kPageTokens * layer.dim[kind]));
        }
      });
      ASSERT_TRUE(clean.fill_to(a, at, 1).ok());
      ASSERT_TRUE(dirty.fill_to(b, at, 1).ok());
      std::vector<const std::uint16_t*> live;
      for_each_page(dirty.impl(), b, [&](const Column&, const StoredLayer&, int, PageId, Page& page) {
        for (const Kind kind : {kKey, kValue}) {
          live.push_back(reinterpret_cast<std::uint16_t*>(dirty.impl().storage.codes(page, kind, page.now[kind])));
        }
      });
      for (const auto& [block, numbers] : originals) {
        const auto* end = block + numbers;
        const bool used = std::any_of(live.begin(), live.end(), [&](const auto* l) { return l >= block && l < end; });
        if (!used) std::fill(block, block + numbers, kHalfNan);
      }
      ASSERT_TRUE(clean.step({{a, 1}}).ok());
      ASSERT_TRUE(dirty.step({{b, 1}}).ok());
      for (int layer = 0; layer < 3; ++layer) ASSERT_EQ(clean.out(layer), dirty.out(layer)) << at;
      ASSERT_TRUE(clean.truncate(a, at).ok());
      ASSERT_TRUE(dirty.truncate(b, at).ok());
    }
    EXPECT_GT(coded_blocks(held_blocks(dirty.impl(), b)), 0);
  }
}

// Case 4: a key or value that is no number, or beyond f16, is an error with its place; the step happened not.
TEST(UglyValues, LiveOnesAreRefusedByName) {
  for (const char* spec : {"f16", "int8", "graded:4"}) {
    for (const float bad : {kNan, std::numeric_limits<float>::infinity(), 70000.f}) {
      for (const Row row : {Row::kKey, Row::kValue}) {
        SCOPED_TRACE(testing::Message() << spec << ", " << bad);
        CacheRunner runner = runner_of(small_layers(), options_of(spec, 900, 0, 2), 2);
        const int other = runner.add(64), s = runner.add(63);
        ASSERT_TRUE(runner.fill_to(other, 50).ok());
        ASSERT_TRUE(runner.fill_to(s, 385).ok());
        const std::vector<HeldBlock> before = held_blocks(runner.impl(), s);
        runner.set_tamper([&](int sequence, std::int64_t index, Row r, int layer, int head, int channel, float* x) {
          if (sequence == s && index >= 386 && r == row && layer >= 1 && head == 1 && channel == 7) *x = bad;
        });
        const Status status = runner.step({{other, 1}, {s, 3}});
        EXPECT_EQ(status.code(), Code::kNotFinite);
        for (const char* part : {"layer 1", "head 1", "token 386", "sequence 1", row == Row::kKey ? "key" : "value"}) {
          EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
        }
        EXPECT_EQ(runner.cache().tokens(s), 385);
        EXPECT_EQ(runner.cache().tokens(other), 50);
        EXPECT_EQ(difference(held_blocks(runner.impl(), s), before), "");
        runner.set_tamper(nullptr);
        ASSERT_TRUE(runner.step({{other, 1}, {s, 3}}).ok()) << "the cache goes on";
        for (const float x : runner.out(2)) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

// Constant, all-zero and tiny groups, a range of one f16 step, and large outliers: finite, and as near as the grid is.
TEST(UglyValues, FlatTinyAndHugeGroups) {
  for (const char* spec : {"int8", "int4", "int2", "graded:4", "graded:2", "pm:8", "pm:2"}) {
    SCOPED_TRACE(spec);
    CacheRunner runner = runner_of(small_layers(), options_of(spec, 700));
    runner.set_tamper([](int, std::int64_t index, Row row, int, int, int channel, float* x) {
      if (row == Row::kQuery) return;
      const float kinds[] = {0.f, 3.25f, 1e-30f, index % 2 == 0 ? 1.f : 1.0009765625f, index == 40 ? 60000.f : *x};
      *x = kinds[channel % 5];
    });
    const int s = runner.add(65);
    ASSERT_TRUE(runner.fill_to(s, 500).ok());
    ASSERT_TRUE(runner.step({{s, 1}}).ok());
    ASSERT_TRUE(runner.step({{s, 9}}).ok());
    for (int layer = 0; layer < 3; ++layer) {
      for (const float x : runner.out(layer)) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace neve::kv
