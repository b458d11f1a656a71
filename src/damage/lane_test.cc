#include "damage/lane.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace neve::damage {
namespace {

LayerGeometry layer(int kv_heads, int key_dim, int value_dim) {
  LayerGeometry geometry;
  geometry.query_heads = kv_heads * 2;
  geometry.kv_heads = kv_heads;
  geometry.key_dim = key_dim;
  geometry.value_dim = value_dim;
  return geometry;
}

TEST(ValuesHeld, CountsWhatEachLayerMustKeep) {
  std::vector<LayerGeometry> layers = {layer(3, 64, 64), layer(1, 192, 128), layer(2, 64, 64), layer(2, 64, 64)};
  layers[2].sliding_window = 100;
  layers[3].shares_layer = 0;
  EXPECT_EQ(values_held(layers, 1000), 1000 * 3 * 128 + 1000 * 320 + 100 * 2 * 128);
  EXPECT_EQ(values_held(layers, 50), 50 * (3 * 128 + 320 + 2 * 128));
  EXPECT_EQ(values_held(layers, 0), 0);
}

TEST(Score, AddsUpRows) {
  Score score;
  const std::vector<RowDamage> rows = {{0.5, 2.0, true}, {-1e-15, 3.0, false}, {0.25, 0.0, true}};
  const std::vector<std::int32_t> next = {4, 5, -1};
  ASSERT_TRUE(score.add(rows, next).ok());
  EXPECT_EQ(score.kl, (std::vector<double>{0.5, 0, 0.25})) << "a hair below zero is rounding";
  EXPECT_EQ(score.nll, 5.0);
  EXPECT_EQ(score.nll_count, 2) << "what follows the last token is not known";
  EXPECT_EQ(score.same_top, 2);
}

TEST(Score, NamesThePositionThatIsNotANumber) {
  Score score;
  const std::vector<RowDamage> rows = {{0.5, 2.0, true}, {std::numeric_limits<double>::quiet_NaN(), 0, false}};
  const Status status = score.add(rows, std::vector<std::int32_t>{1, 2});
  EXPECT_EQ(status.code(), Code::kNotFinite);
  EXPECT_NE(status.message().find("after token 1 "), std::string::npos) << status.message();
}

TEST(MakeRow, TurnsAScoreIntoFigures) {
  CacheOptions options;
  options.spec = *parse_kv_spec("f16");
  options.max_tokens = 512;
  Lane lane;
  lane.spec = options.spec;
  lane.cache = KvCache::create({layer(1, 64, 64)}, options).value();
  lane.sequence = *lane.cache->add_sequence();
  // 4 positions, 3 known next tokens of 2, 3 and 5 bytes; every one has a probability of 1/4.
  const std::vector<RowDamage> rows(4, {0.125, std::log(4.0), true});
  ASSERT_TRUE(lane.score.add(rows, std::vector<std::int32_t>{1, 2, 3, -1}).ok());
  const std::vector<LayerGeometry> layers = lane.cache->layers();
  const DamageRow row = make_row(lane, {layers, {0, 7, 9, 12, 17}, 3});
  EXPECT_EQ(row.engine, "neve");
  EXPECT_EQ(row.kv, "f16");
  EXPECT_EQ(row.tokens, 4);
  EXPECT_EQ(row.bytes, lane.cache->memory().bytes);
  EXPECT_DOUBLE_EQ(row.bits_per_value, static_cast<double>(row.bytes) * 8 / (4 * 128));
  EXPECT_EQ(row.kl_mean, 0.125);
  EXPECT_EQ(row.top1, 1.0);
  EXPECT_DOUBLE_EQ(row.perplexity, 4.0);
  EXPECT_DOUBLE_EQ(row.bits_per_byte, 3 * 2.0 / (2 + 3 + 5));
  EXPECT_EQ(row.kl_by_position, (std::vector<double>{0.125, 0.125}));
}

}  // namespace
}  // namespace neve::damage
