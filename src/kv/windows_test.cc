// What a query attends to: sliding windows, lists of positions, sinks, lengths where none of them align.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv/held_blocks.h"
#include "kv/reference_attention.h"
#include "kv/small_cache.h"

namespace neve::kv {
namespace {

std::vector<LayerGeometry> windowed(int sliding_window) {
  std::vector<LayerGeometry> layers = layers_of(2, 2, 1, 16, 16);
  layers[0].sliding_window = sliding_window;  // layer 1 sees everything
  return layers;
}

// Largest difference of a step from attention over the tokens that `seen` lists by brute force: all positions within the
// window. NaN (a freed page that a query sees) counts as 1e9.
double difference(CacheRunner* runner, int sequence, int tokens) {
  EXPECT_TRUE(runner->begin({{sequence, tokens}}).ok());
  double largest = 0;
  const std::int64_t index = runner->cache().tokens(sequence);
  for (int layer = 0; layer < 2; ++layer) {
    const LayerGeometry& g = runner->cache().layers()[static_cast<std::size_t>(layer)];
    runner->append(layer);
    const std::vector<float>& out = runner->attend(layer);
    const HeadNumbers held = held_numbers(runner->impl(), sequence, layer, 0);
    for (int row = 0; row < tokens; ++row) {
      for (int h = 0; h < g.query_heads; ++h) {
        const std::vector<double> want =
            attend_reference(g, held, runner->query(layer, static_cast<std::size_t>(row), h), index + row);
        for (int c = 0; c < g.value_dim; ++c) {
          const double got =
              static_cast<double>(out[static_cast<std::size_t>((row * g.query_heads + h) * g.value_dim + c)]);
          const double error = std::fabs(got - want[static_cast<std::size_t>(c)]);
          largest = std::max(largest, std::isfinite(error) ? error : 1e9);
        }
      }
    }
  }
  EXPECT_TRUE(runner->commit().ok());
  return largest;
}

// Lengths around the window, around pages, and windows that no page boundary meets.
TEST(SlidingWindow, TheAttendedSetIsTheListedOne) {
  for (const int window : {1, 3, 64, 128, 200, 512}) {
    for (const char* spec : {"f16", "int8"}) {
      SCOPED_TRACE(testing::Message() << spec << ", sliding window " << window);
      CacheRunner runner = runner_of(windowed(window), options_of(spec, 1400));
      const int s = runner.add(51);
      const double tolerance = spec[0] == 'f' ? 1e-5 : 0.02;
      for (const std::int64_t at : {1, 3, 4, 5, window - 1, window, window + 1, 131, 132, 133, 260, 333, 640, 1000}) {
        if (at <= runner.cache().tokens(s)) continue;
        ASSERT_TRUE(runner.fill_to(s, at).ok());
        EXPECT_LE(difference(&runner, s, 1), tolerance) << "decode at " << at;
        EXPECT_LE(difference(&runner, s, 1), tolerance) << "decode after " << at;
      }
      EXPECT_LE(difference(&runner, s, 60), 1e-4 + (spec[0] == 'f' ? 0 : 0.02)) << "tiles";
    }
  }
}

// Case 7: windows and pages that do not align far out.
TEST(SlidingWindow, FarOutTheSameHolds) {
  for (const std::int64_t n : {14337, 14351}) {
    CacheRunner runner = runner_of(windowed(1024), options_of("f16", 14400));
    const int s = runner.add(52);
    ASSERT_TRUE(runner.fill_to(s, n - 1).ok());
    EXPECT_LE(difference(&runner, s, 1), 1e-5) << n << " tokens";
  }
}

// A layer with a window frees whole pages behind it, and a rollback of `window` tokens still finds all it may see.
TEST(SlidingWindow, FreesWhatLiesBehind) {
  CacheRunner all = runner_of(windowed(0), options_of("f16", 3000)),
              some = runner_of(windowed(100), options_of("f16", 3000));
  const int a = all.add(53), b = some.add(53);
  ASSERT_TRUE(all.fill_to(a, 2500).ok());
  ASSERT_TRUE(some.fill_to(b, 2500).ok());
  const std::uint64_t layer = 20 * 128 * (16 + 16) * 2;  // 20 columns of one layer at 16 bit
  EXPECT_LT(some.bytes(), all.bytes() - layer * 3 / 4);
  const CachePlan plan = *plan_cache(windowed(100), options_of("f16", 3000), 2500, 1);
  EXPECT_EQ(plan.bytes, some.bytes());
  ASSERT_TRUE(some.truncate(b, 2500 - 128).ok());
  EXPECT_LE(difference(&some, b, 1), 1e-5);
  EXPECT_EQ(some.cache().truncate(b, 1000).code(), Code::kUnsupported) << "freed pages would be seen again";
  EXPECT_LE(difference(&some, b, 5), 1e-5) << "the refusal changed nothing";
}

// Positions are a list: a cache from which every third token was dropped is legal.
TEST(Positions, EveryThirdIsMissing) {
  for (const int window : {0, 100}) {
    for (const char* spec : {"f16", "int8", "graded:4"}) {
      SCOPED_TRACE(testing::Message() << spec << ", sliding window " << window);
      CacheRunner runner = runner_of(windowed(window), options_of(spec, 900));
      runner.set_positions([](std::int64_t index) { return static_cast<std::int32_t>(index + index / 2); });
      const int s = runner.add(54);
      ASSERT_TRUE(runner.fill_to(s, 700).ok());
      const double tolerance = spec[0] == 'f' ? 1e-5 : spec[0] == 'i' ? 0.02 : 0.08;
      EXPECT_LE(difference(&runner, s, 1), tolerance);
      EXPECT_LE(difference(&runner, s, 20), tolerance);
      ASSERT_TRUE(runner.truncate(s, 650).ok());
      EXPECT_LE(difference(&runner, s, 2), tolerance);
    }
  }
}

// Case 7: sinks 4, window 64; budgets for 0 ... 195 tokens.
TEST(Budgets, BelowTheLeastAreRefusedByTheNumber) {
  const std::vector<LayerGeometry> layers = layers_of(3, 4, 2, 32, 32);
  CacheOptions options = options_of("auto:sinks=4,window=64", 195, std::uint64_t{1} << 40);
  const std::uint64_t first_column = plan_cache(layers, options, 132, 1)->least_bytes;
  for (std::int64_t tokens = 0; tokens <= 195; ++tokens) {
    // What the 16-bit rows alone would take.
    options.budget_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(1, tokens)) * 3 * 2 * (32 + 32) * 2;
    const Result<std::unique_ptr<KvCache>> made = KvCache::create(layers, options);
    if (options.budget_bytes >= first_column) {
      EXPECT_TRUE(made.ok()) << tokens;
      continue;
    }
    ASSERT_FALSE(made.ok()) << tokens;
    EXPECT_EQ(made.status().code(), Code::kBudget);
    EXPECT_NE(made.status().message().find(std::to_string(first_column)), std::string::npos) << made.status().message();
  }
  // The least works, to the byte, and one byte less does not.
  for (const std::int64_t tokens : {1, 4, 5, 132, 133, 195}) {
    options.max_tokens = tokens;
    options.budget_bytes = std::uint64_t{1} << 40;
    options.budget_bytes = plan_cache(layers, options, tokens, 1)->least_bytes;
    CacheRunner runner = runner_of(layers, options);
    const int s = runner.add(55);
    ASSERT_TRUE(runner.fill_to(s, tokens).ok()) << tokens;
    EXPECT_LE(runner.cache().memory().peak_bytes, options.budget_bytes);
    --options.budget_bytes;
    if (tokens <= 132) {
      EXPECT_EQ(KvCache::create(layers, options).status().code(), Code::kBudget) << tokens;
    } else {
      CacheRunner less = runner_of(layers, options);
      const int other = less.add(55);
      EXPECT_EQ(less.fill_to(other, tokens).code(), Code::kBudget) << tokens;
      EXPECT_EQ(less.cache().tokens(other), 132) << "what was read before is kept";
    }
  }
}

}  // namespace
}  // namespace neve::kv
