// The benchmarks, small: that each engine runs, that rows say what was asked, that bad questions are refused.
#include <gtest/gtest.h>

#include "eval/fit_sequences.h"
#include "neve/bench.h"

namespace neve {
namespace {

TEST(BenchAttend, HasARowForEveryCacheAndShape) {
  AttendBenchOptions options;
  options.caches = *parse_kv_specs("llama:f16,llama:q4_0,int8,graded:2");
  options.head_dims = {64};
  options.gqa = {1, 3};
  options.depth_tokens = 600;
  options.working_set_bytes = 300'000;
  options.repeats = 2;
  const auto rows = bench_attend(options);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 8u);
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const AttendBenchRow& row = (*rows)[i];
    EXPECT_EQ(row.engine, i % 4 < 2 ? "ggml" : "neve");
    EXPECT_EQ(row.gqa, i < 4 ? 1 : 3);
    EXPECT_EQ(row.layers, 4) << "300 000 bytes at 600 x 2 x 64 bytes a layer";
    EXPECT_GT(row.values_per_s, 0);
    EXPECT_GE(row.best_values_per_s, row.values_per_s);
    EXPECT_GT(row.over_f16, 0);
    EXPECT_GT(row.over_q4_0, 0);
    EXPECT_FALSE(row.path.empty());
  }
  EXPECT_EQ((*rows)[0].over_f16, 1.0);
  EXPECT_EQ((*rows)[0].bytes, 600u * 4 * 2 * 64 * 2 * 2);
  EXPECT_GT((*rows)[2].bytes, (*rows)[3].bytes);
}

TEST(BenchAttend, RefusesWhatMakesNoSense) {
  AttendBenchOptions options;
  EXPECT_EQ(bench_attend(options).status().code(), Code::kInvalidArgument) << "no cache";
  options.caches = *parse_kv_specs("int4");
  options.head_dims = {1000};
  EXPECT_EQ(bench_attend(options).status().code(), Code::kInvalidArgument);
  options.head_dims = {64};
  options.repeats = 0;
  EXPECT_EQ(bench_attend(options).status().code(), Code::kInvalidArgument);
}

class BenchDecode : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.threads = 2;
    auto model = Model::load(std::string(NEVE_SOURCE_DIR) + "/testdata/models/dense-4m-q8_0.gguf", options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = model->release();
  }
  static void TearDownTestSuite() { delete model_; }
  static const Model* model_;
};
const Model* BenchDecode::model_ = nullptr;

TEST_F(BenchDecode, MeasuresBothEnginesAtEveryDepth) {
  DecodeBenchOptions options;
  options.caches = *parse_kv_specs("llama:f16,int4");
  options.depths = {0, 300};
  options.sequences = 2;
  options.decode_tokens = 3;
  options.prefill_tokens = 20;
  options.repeats = 1;
  double last = 0;
  options.control.progress = [&last](double fraction) {
    EXPECT_GE(fraction, last);
    last = fraction;
  };
  const auto rows = bench_decode(*model_, options);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_DOUBLE_EQ(last, 1.0);
  ASSERT_EQ(rows->size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const DecodeBenchRow& row = (*rows)[i];
    EXPECT_EQ(row.engine, i % 2 == 0 ? "llama.cpp" : "neve");
    EXPECT_EQ(row.kv, i % 2 == 0 ? "f16" : "int4");
    EXPECT_EQ(row.depth, i < 2 ? 0 : 300);
    EXPECT_EQ(row.sequences, 2);
    EXPECT_GT(row.decode_tokens_per_s, 0);
    EXPECT_GT(row.prefill_tokens_per_s, 0);
    EXPECT_GT(row.decode_over_f16, 0);
    EXPECT_GT(row.kv_bytes, 0u);
  }
}

TEST_F(BenchDecode, AsManySequencesAsFit) {
  constexpr std::int64_t kTokens = 1024;
  const auto memory = eval::f16_bytes(*model_, kTokens, 4, 2);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const auto fit = [&](const std::string& spec) {
    const auto count = eval::fit_sequences(*model_, {*parse_kv_spec(spec), Demote::kPage, kTokens, *memory, 2});
    EXPECT_TRUE(count.ok()) << spec << ": " << count.status().message();
    return count.ok() ? *count : -1;
  };
  EXPECT_EQ(fit("f16"), 4);
  EXPECT_EQ(fit("llama:f16"), 4);
  EXPECT_EQ(fit("llama:q8_0"), 7) << "8.5 bits a value";
  EXPECT_EQ(fit("llama:q4_0"), 14) << "4.5 bits a value";
  const int int8 = fit("int8"), int4 = fit("int4"), int2 = fit("int2");
  EXPECT_GT(int8, 4);
  EXPECT_GT(int4, int8);
  EXPECT_GT(int2, int4);
  EXPECT_GE(fit("auto"), int4) << "it may stand at its last rungs";
  // One more would not have fitted.
  CacheOptions options;
  options.spec = *parse_kv_spec("int4");
  options.max_tokens = kTokens;
  options.max_sequences = int4 + 1;
  EXPECT_LE(plan_cache(model_->info().layers, options, kTokens, int4)->bytes, *memory);
  EXPECT_GT(plan_cache(model_->info().layers, options, kTokens, int4 + 1)->bytes, *memory);
}

TEST_F(BenchDecode, RefusesWhatMakesNoSense) {
  DecodeBenchOptions options;
  EXPECT_EQ(bench_decode(*model_, options).status().code(), Code::kInvalidArgument) << "no cache";
  options.caches = *parse_kv_specs("int4");
  options.depths = {-1};
  EXPECT_EQ(bench_decode(*model_, options).status().code(), Code::kInvalidArgument);
  options.depths = {16};
  options.fit_f16_sequences = 4;
  EXPECT_EQ(bench_decode(*model_, options).status().code(), Code::kInvalidArgument) << "no room to decode";
}

}  // namespace
}  // namespace neve
