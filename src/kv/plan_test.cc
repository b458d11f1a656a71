// plan_cache against caches that really ran: the same bytes, the same capacity.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kv/small_cache.h"

namespace neve::kv {
namespace {

std::vector<LayerGeometry> mixed_layers() {
  std::vector<LayerGeometry> layers = layers_of(3, 4, 2, 16, 16);
  layers[1] = heads_of(3, 3, 20, 6);
  layers[2].shares_layer = 0;
  return layers;
}

std::vector<LayerGeometry> sliding_layers() {
  std::vector<LayerGeometry> layers = layers_of(3, 2, 2, 16, 16);
  layers[0].sliding_window = 200;
  layers[2].sliding_window = 33;
  return layers;
}

// Runs `sequences` sequences in lockstep, in steps of `step` tokens, and asks the plan at some lengths.
void expect_as_planned(const std::vector<LayerGeometry>& layers, const CacheOptions& options, int sequences, int step,
                       std::int64_t tokens) {
  Result<std::unique_ptr<KvCache>> made = KvCache::create(layers, options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  CacheRunner runner(std::move(made).value());
  std::vector<int> ids;
  for (int i = 0; i < sequences; ++i) ids.push_back(runner.add(static_cast<std::uint64_t>(i) + 1));
  std::int64_t at = 0;
  for (int turn = 0; at < tokens; ++turn) {
    // A step may not span what it could not hold at once: up to the next column, as prefill does.
    const std::int64_t column_end =
        at < options.spec.sinks + 128 ? options.spec.sinks + 128 : at + 128 - (at - options.spec.sinks) % 128;
    const std::int64_t stop = std::min({tokens, at + step, column_end});
    std::vector<RunnerPart> parts;
    for (const int id : ids) parts.push_back({id, static_cast<int>(stop - at)});
    const Status status = runner.fill(parts);
    if (status.code() == Code::kBudget) break;
    ASSERT_TRUE(status.ok()) << status.message();
    at = stop;
    if (turn % 37 == 0 || at > tokens - 3) {
      const Result<CachePlan> plan = plan_cache(layers, options, at, sequences);
      ASSERT_TRUE(plan.ok());
      ASSERT_EQ(plan->bytes, runner.bytes()) << "at " << at << " tokens, in steps of " << step;
      ASSERT_EQ(plan->capacity_tokens, at);
      ASSERT_TRUE(sequences > 1 || plan->peak_bytes == runner.cache().memory().peak_bytes)
          << "at " << at << " tokens, in steps of " << step << ": peak " << runner.cache().memory().peak_bytes
          << ", planned " << plan->peak_bytes;
    }
  }
  const CachePlan plan = *plan_cache(layers, options, tokens, sequences);
  EXPECT_EQ(plan.capacity_tokens, at);
  EXPECT_EQ(plan.bytes, runner.bytes());
}

const std::string kWindows[] = {"", "window=0", "window=64", "window=200,sinks=0", "window=128,sinks=1"};

std::string with(const std::string& spec, const std::string& options) {
  return options.empty() ? spec : spec + ":" + options;
}

TEST(Plan, FixedWidths) {
  for (const char* spec : {"f16", "int8", "int4", "int2", "graded:4", "graded:3", "graded:2"}) {
    for (const std::string& window : kWindows) {
      SCOPED_TRACE(with(spec, window));
      for (const int step : {1, 50, 128}) {
        expect_as_planned(mixed_layers(), options_of(with(spec, window)), 1, step, 700);
        expect_as_planned(sliding_layers(), options_of(with(spec, window)), 1, step, 700);
      }
    }
  }
}

TEST(Plan, ThePapersLadder) {
  for (const char* spec : {"pm:8", "pm:4", "pm:2"}) {
    for (const std::string& window : kWindows) {
      SCOPED_TRACE(with(spec, window));
      for (const int step : {1, 50, 128}) {
        expect_as_planned(mixed_layers(), options_of(with(spec, window), 800), 1, step, 800);
        expect_as_planned(sliding_layers(), options_of(with(spec, window), 800), 1, step, 800);
      }
    }
  }
}

TEST(Plan, AutoByPageAndByLayer) {
  for (const std::string& window : kWindows) {
    for (const Demote demote : {Demote::kPage, Demote::kLayer}) {
      for (const auto& layers : {mixed_layers(), sliding_layers()}) {
        CacheOptions options = options_of(with("auto", window));
        options.demote = demote;
        const std::uint64_t f16 = plan_cache(layers, options, 900, 1)->f16_bytes;
        for (const double part : {0.35, 0.6, 2.0}) {
          options.budget_bytes = static_cast<std::uint64_t>(part * static_cast<double>(f16));
          if (!KvCache::create(layers, options).ok()) continue;
          for (const int step : {1, 50, 128}) {
            SCOPED_TRACE(testing::Message() << with("auto", window) << (demote == Demote::kPage ? " page " : " layer ")
                                            << options.budget_bytes);
            expect_as_planned(layers, options, 1, step, 900);
          }
        }
      }
    }
  }
}

TEST(Plan, FixedWidthsOnABudget) {
  for (const char* spec : {"f16", "int8", "graded:3"}) {
    for (const auto& layers : {mixed_layers(), sliding_layers()}) {
      CacheOptions options = options_of(spec);
      options.budget_bytes = plan_cache(layers, options_of("f16"), 500, 1)->bytes;
      for (const int step : {1, 50, 128}) {
        SCOPED_TRACE(testing::Message() << spec << ", steps of " << step);
        expect_as_planned(layers, options, 1, step, 1500);
      }
    }
  }
}

TEST(Plan, ManySequences) {
  for (const char* spec : {"f16", "int4", "graded:3", "pm:4", "auto"}) {
    for (const int sequences : {2, 3}) {
      CacheOptions options = options_of(spec, 700, 0, sequences);
      const std::uint64_t f16 = plan_cache(mixed_layers(), options, 700, sequences)->f16_bytes;
      if (options.spec.mode == KvMode::kAuto) options.budget_bytes = f16 / 2;
      for (const int step : {1, 50, 128}) {
        SCOPED_TRACE(testing::Message() << spec << ", " << sequences << " sequences, steps of " << step);
        expect_as_planned(mixed_layers(), options, sequences, step, 700);
      }
    }
  }
}

// Row 9 of the issue, at the shape of a real model: bytes of a run are those of its plan.
TEST(Plan, SmolLM2) {
  const auto layers = layers_of(30, 9, 3, 64, 64);
  CacheOptions options = options_of("auto", 8192, 16u << 20);
  const CachePlan plan = *plan_cache(layers, options, 8192, 1);
  EXPECT_LE(plan.bytes, 16u << 20);
  EXPECT_LE(plan.peak_bytes, 16u << 20);
  EXPECT_GT(plan.bytes, (16u << 20) - 600000) << "the budget is used";
  EXPECT_NEAR(static_cast<double>(plan.capacity_tokens), 3300, 200);
  EXPECT_EQ(plan.least_bytes, 33131520u + 16384u);
  ASSERT_EQ(plan.layers.size(), 30u);
  std::uint64_t bytes = 0;
  for (const CachePlan::Layer& layer : plan.layers) {
    bytes += layer.bytes;
    EXPECT_GT(layer.key_bits, 2);
    EXPECT_LT(layer.key_bits, 4);
  }
  EXPECT_LE(bytes, plan.bytes);
  EXPECT_GT(bytes + 300000, plan.bytes);
}

TEST(Plan, AutoWidthIsAPartOfSixteenBit) {
  const auto layers = layers_of(4, 4, 2, 64, 64);
  for (const double width : {3.0, 4.0, 8.0, 16.0}) {
    CacheOptions options = options_of("auto:" + std::to_string(width), 4000);
    const CachePlan plan = *plan_cache(layers, options, 4000, 1);
    EXPECT_NEAR(static_cast<double>(plan.budget_bytes), static_cast<double>(plan.f16_bytes) * width / 16, 1.0);
    EXPECT_LE(plan.bytes, plan.budget_bytes);
    // 2 bits with scales are 2.4, and the last two columns stand at 16.
    EXPECT_TRUE(width < 4 || plan.capacity_tokens == 4000) << width;
  }
}

}  // namespace
}  // namespace neve::kv
