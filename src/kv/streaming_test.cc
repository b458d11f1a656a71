// Cutting the same tokens into other steps, other schedules, other threads or other company changes neither codes nor
// results.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kv/held_blocks.h"
#include "kv/small_cache.h"

namespace neve::kv {
namespace {

const std::vector<LayerGeometry>& small_layers() {
  static const std::vector<LayerGeometry> layers = layers_of(2, 6, 2, 48, 36);
  return layers;
}

struct Case {
  std::string spec;
  double budget_share = 0;  // between the least budget (0) and 16 bit (1); < 0: none
};
const Case kCases[] = {{"f16", -1},      {"int8", -1},     {"int4", -1}, {"int2", -1},
                       {"graded:3", -1}, {"graded:2", -1}, {"pm:2", -1}, {"int4:sinks=0,window=0", -1},
                       {"auto", 0.05},   {"auto", 0.4},    {"auto", -1}, {"graded:4:sinks=7,window=200", -1}};

CacheOptions options_for(const Case& c, std::int64_t max_tokens, int sequences = 1) {
  CacheOptions options = options_of(c.spec, max_tokens, 0, sequences);
  if (c.budget_share < 0) return options;
  options.budget_bytes = std::uint64_t{1} << 40;
  const CachePlan plan = *plan_cache(small_layers(), options, max_tokens, sequences);
  options.budget_bytes =
      plan.least_bytes +
      static_cast<std::uint64_t>(c.budget_share * static_cast<double>(plan.f16_bytes - plan.least_bytes));
  return options;
}

// Case 3: 32 tokens at once and 368 one by one, or 400 in the largest steps that may be.
TEST(Streaming, EqualsOneShot) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.spec << ", budget share " << c.budget_share);
    const CacheOptions options = options_for(c, 700);
    CacheRunner one_by_one = runner_of(small_layers(), options), at_once = runner_of(small_layers(), options);
    const int a = one_by_one.add(11), b = at_once.add(11);
    ASSERT_TRUE(one_by_one.fill({{a, 32}}).ok());
    ASSERT_TRUE(one_by_one.fill_to(a, 400, 1).ok());
    ASSERT_TRUE(at_once.fill_to(b, 400).ok());
    EXPECT_EQ(difference(held_blocks(one_by_one.impl(), a), held_blocks(at_once.impl(), b)), "");
    if (c.spec[0] == 'i' || c.spec[0] == 'g') {
      EXPECT_GT(coded_blocks(held_blocks(at_once.impl(), b)), 0);
    }
    ASSERT_TRUE(one_by_one.step({{a, 1}}).ok());
    ASSERT_TRUE(at_once.step({{b, 1}}).ok());
    for (int layer = 0; layer < 2; ++layer) EXPECT_EQ(one_by_one.out(layer), at_once.out(layer));
    EXPECT_EQ(one_by_one.bytes(), at_once.bytes());
  }
}

// The first page is coded at 260 tokens and not before.
TEST(Streaming, TheFirstPageIsCodedWhenTheWindowLetsIt) {
  for (const char* spec : {"int8", "graded:4"}) {
    CacheRunner runner = runner_of(small_layers(), options_of(spec, 700));
    const int s = runner.add(1);
    ASSERT_TRUE(runner.fill_to(s, 259, 1).ok());
    EXPECT_EQ(coded_blocks(held_blocks(runner.impl(), s)), 0);
    ASSERT_TRUE(runner.fill({{s, 1}}).ok());
    EXPECT_EQ(coded_blocks(held_blocks(runner.impl(), s)), 2 * 2 * 2) << "layers, heads, kinds";
    ASSERT_TRUE(runner.fill_to(s, 387, 1).ok());
    EXPECT_EQ(coded_blocks(held_blocks(runner.impl(), s)), 2 * 2 * 2);
    ASSERT_TRUE(runner.fill({{s, 1}}).ok());
    EXPECT_EQ(coded_blocks(held_blocks(runner.impl(), s)), 2 * 2 * 2 * 2);
  }
}

TEST(Streaming, AnyCutGivesTheSameCodes) {
  std::mt19937 random(5);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.spec << ", budget share " << c.budget_share);
    const CacheOptions options = options_for(c, 1100);
    CacheRunner whole = runner_of(small_layers(), options), cut = runner_of(small_layers(), options);
    const int a = whole.add(12), b = cut.add(12);
    ASSERT_TRUE(whole.fill_to(a, 1050).ok());
    while (cut.cache().tokens(b) < 1050) {
      const std::int64_t most = 1 + static_cast<std::int64_t>(random() % 90);
      ASSERT_TRUE(cut.fill_to(b, std::min<std::int64_t>(1050, cut.cache().tokens(b) + most), most).ok());
    }
    EXPECT_EQ(difference(held_blocks(whole.impl(), a), held_blocks(cut.impl(), b)), "");
    EXPECT_EQ(whole.bytes(), cut.bytes());
  }
}

TEST(Streaming, SchedulesOfCodingGiveTheSameCodes) {
  for (const Case& c : kCases) {
    if (c.budget_share >= 0)
      continue;  // on a budget the schedules hold different memory at a time, and may choose apart
    SCOPED_TRACE(c.spec);
    CacheOptions options = options_for(c, 900);
    CacheRunner spread = runner_of(small_layers(), options);
    options.schedule = CodingSchedule::kAtBoundary;
    CacheRunner boundary = runner_of(small_layers(), options);
    const int a = spread.add(13), b = boundary.add(13);
    for (const std::int64_t tokens : {131, 132, 259, 260, 261, 387, 388, 389, 800}) {
      ASSERT_TRUE(spread.fill_to(a, tokens, 1).ok());
      ASSERT_TRUE(boundary.fill_to(b, tokens, 37).ok());
      EXPECT_EQ(difference(held_blocks(spread.impl(), a), held_blocks(boundary.impl(), b)), "") << tokens << " tokens";
    }
  }
}

TEST(Streaming, ThreadsDoNotChangeTheResult) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.spec << ", budget share " << c.budget_share);
    const CacheOptions options = options_for(c, 700);
    std::vector<std::vector<float>> outputs[3];
    std::vector<HeldBlock> blocks[3];
    const int slices[] = {1, 2, 5};
    for (int i = 0; i < 3; ++i) {
      CacheRunner runner = runner_of(small_layers(), options, slices[i]);
      const int s = runner.add(14);
      ASSERT_TRUE(runner.fill_to(s, 600).ok());
      for (const int tokens : {1, 1, 3, 30, 1}) {
        ASSERT_TRUE(runner.step({{s, tokens}}).ok());
        for (int layer = 0; layer < 2; ++layer) outputs[i].push_back(runner.out(layer));
      }
      blocks[i] = held_blocks(runner.impl(), s);
    }
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
    EXPECT_EQ(difference(blocks[0], blocks[1]), "");
    EXPECT_EQ(difference(blocks[0], blocks[2]), "");
  }
}

// Case 13: three sequences of unequal length in one batch, the longest ends first, the others go on.
TEST(Streaming, RaggedBatchesEqualTheirOwnRuns) {
  for (const char* spec : {"f16", "int8", "int4", "graded:3", "int2"}) {
    SCOPED_TRACE(spec);
    const std::int64_t lengths[] = {40, 300, 555};
    constexpr int kSteps = 12;
    CacheRunner together = runner_of(small_layers(), options_of(spec, 700, 0, 3), 3);
    int ids[3];
    for (int i = 0; i < 3; ++i) {
      ids[i] = together.add(static_cast<std::uint64_t>(20 + i));
      ASSERT_TRUE(together.fill_to(ids[i], lengths[i]).ok());
    }
    std::vector<float> outputs[3];
    for (int step = 0; step < kSteps; ++step) {
      std::vector<RunnerPart> parts;
      for (int i = 0; i < 3; ++i) {
        if (i == 2 && step >= 5) continue;
        parts.push_back({ids[i], i == 0 && step == 3 ? 9 : 1});  // one of them reads a chunk meanwhile
      }
      ASSERT_TRUE(together.step(parts).ok());
      const std::vector<float>& out = together.out(1);
      auto at = out.begin();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto end = at + parts[i].tokens * 6 * 36;
        outputs[i].insert(outputs[i].end(), at, end);
        at = end;
      }
      if (step == 4) {
        ASSERT_TRUE(together.remove(ids[2]).ok());
      }
    }
    for (int i = 0; i < 3; ++i) {
      CacheRunner alone = runner_of(small_layers(), options_of(spec, 700));
      const int s = alone.add(static_cast<std::uint64_t>(20 + i));
      ASSERT_TRUE(alone.fill_to(s, lengths[i]).ok());
      std::vector<float> expected;
      for (int step = 0; step < (i == 2 ? 5 : kSteps); ++step) {
        ASSERT_TRUE(alone.step({{s, i == 0 && step == 3 ? 9 : 1}}).ok());
        expected.insert(expected.end(), alone.out(1).begin(), alone.out(1).end());
      }
      EXPECT_EQ(outputs[i], expected) << "sequence " << i;
      if (i < 2) {
        EXPECT_EQ(held_blocks(together.impl(), ids[i]), held_blocks(alone.impl(), s)) << "sequence " << i;
      }
    }
  }
}

// `auto` with a budget that never fills is 16 bit, to the bit.
TEST(Streaming, ARoomyBudgetIsNoBudget) {
  CacheRunner roomy = runner_of(small_layers(), options_of("auto", 900, std::uint64_t{1} << 30));
  CacheRunner none = runner_of(small_layers(), options_of("f16", 900));
  const int a = roomy.add(15), b = none.add(15);
  for (int step = 0; step < 30; ++step) {
    const int tokens = step % 5 == 0 ? 100 : 1 + step % 3;
    ASSERT_TRUE(roomy.step({{a, tokens}}).ok());
    ASSERT_TRUE(none.step({{b, tokens}}).ok());
    EXPECT_EQ(roomy.out(0), none.out(0));
    EXPECT_EQ(roomy.out(1), none.out(1));
  }
  EXPECT_EQ(roomy.cache().memory().demotions, 0u);
  EXPECT_EQ(difference(held_blocks(roomy.impl(), a), held_blocks(none.impl(), b)), "");
}

}  // namespace
}  // namespace neve::kv
