// The whole of damage on the project's small model: a text of its own, read by several caches.
#include <gtest/gtest.h>

#include <set>

#include "neve/damage.h"

namespace neve {
namespace {

// Weights as in the file: no converted copy is left behind, and the model's own noise is small enough for what is asked.
class SlowMeasureDamage : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.threads = 2;
    auto model = Model::load(std::string(NEVE_SOURCE_DIR) + "/testdata/models/dense-4m-q8_0.gguf", options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = model->release();
    OwnTextOptions own;
    own.tokens = 700;
    own.segments = 3;
    auto text = sample_own_text(*model_, own);
    ASSERT_TRUE(text.ok()) << text.status().message();
    text_ = new EvalText(*text);
  }
  static void TearDownTestSuite() {
    delete model_;
    delete text_;
  }
  static Result<DamageReport> measure(const std::string& caches) {
    DamageOptions options;
    options.caches = *parse_kv_specs(caches);
    return measure_damage(*model_, *text_, options);
  }

  static const Model* model_;
  static const EvalText* text_;
};
const Model* SlowMeasureDamage::model_ = nullptr;
const EvalText* SlowMeasureDamage::text_ = nullptr;

TEST_F(SlowMeasureDamage, OrdersCachesByWhatTheyKeep) {
  const auto report = measure("f16,int8,int4,int2,llama:q4_0");
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->rows.size(), 5u);
  const DamageRow &f16 = report->rows[0], &int8 = report->rows[1], &int4 = report->rows[2], &int2 = report->rows[3];
  EXPECT_LT(f16.kl_mean, 1e-9);
  EXPECT_EQ(f16.top1, 1.0);
  EXPECT_LT(int8.kl_mean, int4.kl_mean / 5);
  EXPECT_LT(int4.kl_mean, int2.kl_mean / 5);
  EXPECT_GT(int2.kl_mean, 1e-3);
  EXPECT_LT(int2.kl_mean, 1.0);
  EXPECT_GT(f16.bytes, int8.bytes);
  EXPECT_GT(int8.bytes, int4.bytes);
  EXPECT_GT(int4.bytes, int2.bytes);
  EXPECT_GE(f16.bits_per_value, 16.0);
  EXPECT_LT(int2.kl_median, int2.kl_mean);
  EXPECT_GT(int2.kl_p99, int2.kl_mean);
  EXPECT_EQ(report->rows[4].engine, "llama.cpp");
  EXPECT_EQ(report->rows[4].kv, "llama:q4_0");
  EXPECT_GT(report->rows[4].kl_mean, int8.kl_mean);
  for (const DamageRow& row : report->rows) {
    EXPECT_EQ(row.tokens, 700);
    EXPECT_EQ(row.kl_by_position.size(), 11u);
    EXPECT_GT(row.perplexity, 1.0);
    EXPECT_GT(row.bits_per_byte, 0.1);
    EXPECT_LT(row.bits_per_byte, 8.0);
  }
  // Nothing is coded before sinks + window + one page; every position up to there is as in the reference.
  for (std::size_t bin = 0; bin < 4; ++bin) EXPECT_LT(int2.kl_by_position[bin], 1e-9) << bin;
  EXPECT_GT(int2.kl_by_position[6], 1e-5);
}

TEST_F(SlowMeasureDamage, DoesNotDependOnWhoElseIsMeasured) {
  const auto alone = measure("int4"), together = measure("int2,graded:4,int4,f16");
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  ASSERT_TRUE(together.ok()) << together.status().message();
  const double one = alone->rows[0].kl_mean, other = together->rows[2].kl_mean;
  EXPECT_NEAR(one, other, 0.02 * one + alone->noise.kl_mean + together->noise.kl_mean);
  EXPECT_EQ(alone->rows[0].bytes, together->rows[2].bytes);
}

TEST_F(SlowMeasureDamage, AFullBudgetEndsOneRowAndNotTheOthers) {
  DamageOptions options;
  options.caches = *parse_kv_specs("auto,int8");
  options.budget_bytes = 950'000;
  const auto report = measure_damage(*model_, *text_, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_LT(report->rows[0].tokens, 700);
  EXPECT_EQ(report->rows[0].tokens, 516) << "as planned: neve plan --ctx 700 --budget 950000";
  EXPECT_LE(report->rows[0].bytes, 950'000u);
  EXPECT_EQ(report->rows[1].tokens, 700);
}

TEST_F(SlowMeasureDamage, EndsWhenAskedTo) {
  DamageOptions options;
  options.caches = *parse_kv_specs("int8");
  int asked = 0;
  options.cancelled = [&asked] { return ++asked > 2; };
  const auto report = measure_damage(*model_, *text_, options);
  EXPECT_EQ(report.status().code(), Code::kCancelled);
  EXPECT_NE(report.status().message().find("of 700 tokens"), std::string::npos) << report.status().message();
}

TEST_F(SlowMeasureDamage, RefusesWhatMakesNoSense) {
  EXPECT_EQ(measure_damage(*model_, *text_, {}).status().code(), Code::kInvalidArgument);
  DamageOptions options;
  options.caches = *parse_kv_specs("int8");
  EXPECT_EQ(measure_damage(*model_, {{5}, "one token"}, options).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_eval_text(*model_, "no-such-file.txt", 100).status().code(), Code::kNotFound);
}

TEST_F(SlowMeasureDamage, OwnTextIsTheSameForTheSameSeed) {
  OwnTextOptions options;
  options.tokens = 96;
  options.segments = 4;
  const auto one = sample_own_text(*model_, options), again = sample_own_text(*model_, options);
  options.seed = 99;
  const auto other = sample_own_text(*model_, options);
  ASSERT_TRUE(one.ok() && again.ok() && other.ok());
  EXPECT_EQ(one->tokens, again->tokens);
  EXPECT_NE(one->tokens, other->tokens);
  EXPECT_EQ(std::ssize(one->tokens), 96);
  // Segments have seeds of their own.
  std::set<std::vector<std::int32_t>> segments;
  for (int i = 0; i < 4; ++i) segments.insert({one->tokens.begin() + 24 * i, one->tokens.begin() + 24 * (i + 1)});
  EXPECT_EQ(segments.size(), 4u);
}

}  // namespace
}  // namespace neve
