#include "damage/lockstep.h"

#include <gtest/gtest.h>

namespace neve::damage {
namespace {

Lane lane_of(const std::string& text, std::uint64_t budget_bytes = 0) {
  LayerGeometry layer;
  layer.query_heads = 4;
  layer.kv_heads = 2;
  layer.key_dim = layer.value_dim = 64;
  CacheOptions options;
  options.spec = *parse_kv_spec(text);
  options.max_tokens = 2048;
  options.budget_bytes = budget_bytes;
  options.schedule = CodingSchedule::kAtBoundary;
  Lane lane;
  lane.spec = options.spec;
  lane.cache = KvCache::create({layer, layer}, options).value();
  lane.sequence = *lane.cache->add_sequence();
  return lane;
}

// Lets the caches read `tokens` zeros.
void feed(std::span<Lane*> lanes, std::int64_t tokens) {
  const std::vector<float> zeros(static_cast<std::size_t>(tokens) * 4 * 64);
  end_full_lanes(lanes, tokens);
  for (Lane* lane : lanes) {
    if (lane->ended) continue;
    const StepPart part = {lane->sequence, static_cast<int>(tokens), nullptr};
    const Status begun = lane->cache->begin_step({&part, 1});
    ASSERT_TRUE(begun.ok()) << begun.message();
    for (int layer = 0; layer < 2; ++layer) {
      lane->cache->append(layer, 0, 1, {zeros.data(), 256, 64}, {zeros.data(), 128, 64}, {zeros.data(), 128, 64});
    }
    ASSERT_TRUE(lane->cache->commit_step().ok());
  }
}

TEST(NextChunk, EndsOnTheBoundariesOfEveryCache) {
  // Pages may be coded at sinks + window + 128 k.
  Lane usual = lane_of("int4"), other = lane_of("int4:sinks=1,window=64"), f16 = lane_of("f16");
  std::vector<Lane*> lanes = {&f16, &usual, &other};
  constexpr std::int64_t kText = 700;
  std::vector<std::int64_t> ends;
  for (std::int64_t position = 0; position < kText;) {
    const std::int64_t chunk = next_chunk(lanes, position, kText - position);
    ASSERT_GT(chunk, 0);
    ASSERT_LE(chunk, kChunkTokens);
    feed(lanes, chunk);
    position += chunk;
    ends.push_back(position);
  }
  EXPECT_EQ(ends.back(), kText);
  for (const std::int64_t k : {1, 2, 3}) {
    EXPECT_NE(std::find(ends.begin(), ends.end(), 4 + 128 + 128 * k), ends.end()) << "of int4, page " << k;
    EXPECT_NE(std::find(ends.begin(), ends.end(), 1 + 64 + 128 * k), ends.end()) << "of the other, page " << k;
  }
}

TEST(EndFullLanes, LeavesTheOthersAndWhatTheFullOneHolds) {
  Lane small = lane_of("auto", 400'000), f16 = lane_of("f16");
  std::vector<Lane*> lanes = {&f16, &small};
  std::int64_t position = 0, held = 0;
  while (position < 2048) {
    const std::int64_t chunk = next_chunk(lanes, position, 2048 - position);
    ASSERT_GT(chunk, 0);
    feed(lanes, chunk);
    position += chunk;
    if (small.ended) {
      lanes = {&f16};
    } else {
      held = position;
    }
  }
  EXPECT_TRUE(small.ended);
  EXPECT_FALSE(f16.ended);
  EXPECT_EQ(small.cache->tokens(small.sequence), held);
  EXPECT_EQ(f16.cache->tokens(f16.sequence), 2048);
  EXPECT_GT(held, 256);
  EXPECT_LE(small.cache->memory().bytes, 400'000u);
}

TEST(NoisePieces, AreUnequalAndComplete) {
  for (std::int64_t chunk = 1; chunk <= kChunkTokens; ++chunk) {
    const Pieces pieces = noise_pieces(chunk);
    EXPECT_EQ(pieces.first + pieces.second, chunk);
    EXPECT_GE(pieces.first, 1);
    EXPECT_GE(pieces.second, 0);
    if (chunk > 2) {
      EXPECT_NE(pieces.first, pieces.second);
    }
  }
}

TEST(RowsPerRun, BoundsTheLogits) {
  EXPECT_EQ(rows_per_run(256), kMostRows);
  EXPECT_EQ(rows_per_run(151936), (256 << 20) / (151936 * 4));
  EXPECT_EQ(rows_per_run(10'000'000), kChunkTokens);
}

}  // namespace
}  // namespace neve::damage
