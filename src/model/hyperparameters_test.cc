#include "model/hyperparameters.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/edited_gguf.h"

namespace neve::model {
namespace {

class HyperparametersTest : public testing::Test {
 protected:
  Result<Hyperparameters> read(EditedGguf& edited) {
    const Result<GgufFile> file = GgufFile::open(edited.write(folder_.file("x.gguf")));
    if (!file.ok()) return file.status();
    return read_hyperparameters(*file);
  }
  void expect_refused(EditedGguf& edited, Code code, const std::string& part) {
    const Result<Hyperparameters> result = read(edited);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status().message();
    EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
  }

  ScratchFolder folder_;
  EditedGguf edited_{dense_model()};
};

TEST_F(HyperparametersTest, ReadsTheShape) {
  const Result<Hyperparameters> hyper = read(edited_);
  ASSERT_TRUE(hyper.ok()) << hyper.status().message();
  EXPECT_EQ(hyper->layers(), 6);
  EXPECT_EQ(hyper->hidden, 256);
  EXPECT_EQ(hyper->vocabulary, 256);
  EXPECT_EQ(hyper->context_tokens, 8192);
  EXPECT_EQ(hyper->feed_forward, std::vector<std::int64_t>(6, 640));
  const LayerGeometry& layer = hyper->attention[5];
  EXPECT_EQ(layer.query_heads, 4);
  EXPECT_EQ(layer.kv_heads, 2);
  EXPECT_EQ(layer.key_dim, 64);
  EXPECT_EQ(layer.value_dim, 64);
  EXPECT_EQ(layer.sliding_window, 0);
  EXPECT_FLOAT_EQ(layer.scale, 0.125f);
  EXPECT_EQ(hyper->rope.pairs, RopePairs::kHalves);
  EXPECT_EQ(hyper->rope.channels, 64);
  EXPECT_FLOAT_EQ(hyper->rope.base, 1e5f);
  EXPECT_FLOAT_EQ(hyper->rope.scale, 1.f);
}

TEST_F(HyperparametersTest, NamesArchitecturesThatWork) {
  edited_.architecture("mamba\n2");
  expect_refused(edited_, Code::kUnsupported,
                 "architecture 'mamba?2' is not supported; these work: llama, qwen2, qwen3");
}

TEST_F(HyperparametersTest, RefusesExperts) {
  edited_.u32("qwen3.expert_count", 8);
  expect_refused(edited_, Code::kUnsupported, "mixture of experts (8 experts)");
}

TEST_F(HyperparametersTest, RefusesLatentAttention) {
  edited_.u32("qwen3.attention.key_length_mla", 192);
  expect_refused(edited_, Code::kUnsupported, "MLA");
}

TEST_F(HyperparametersTest, RefusesUnknownRopeScaling) {
  edited_.text("qwen3.rope.scaling.type", "longrope");
  expect_refused(edited_, Code::kUnsupported, "RoPE scaling 'longrope'");
}

TEST_F(HyperparametersTest, SaysWhatIsMissingOrOfAnotherType) {
  edited_.remove_key("qwen3.block_count");
  expect_refused(edited_, Code::kDamaged, "key 'qwen3.block_count' is missing (wanted u32)");
  EditedGguf other(dense_model());
  other.text("qwen3.embedding_length", "256");
  expect_refused(other, Code::kDamaged, "key 'qwen3.embedding_length': wanted u32, got str");
}

TEST_F(HyperparametersTest, ChecksRanges) {
  edited_.u32("qwen3.attention.head_count_kv", 3);
  expect_refused(edited_, Code::kDamaged, "'qwen3.attention.head_count_kv': wanted a divisor of 4, got 3");
  EditedGguf channels(dense_model());
  channels.u32("qwen3.attention.key_length", 1024);
  expect_refused(channels, Code::kDamaged, "wanted 1 to 576, got 1024");
  EditedGguf blocks(dense_model());
  blocks.u32("qwen3.block_count", 100000);
  expect_refused(blocks, Code::kDamaged, "wanted 1 to 512, got 100000");
  EditedGguf rope(dense_model());
  rope.u32("qwen3.rope.dimension_count", 66);
  expect_refused(rope, Code::kDamaged, "an even number up to 64, got 66");
  EditedGguf base(dense_model());
  base.f32("qwen3.rope.freq_base", std::nanf(""));
  expect_refused(base, Code::kDamaged, "'qwen3.rope.freq_base' is not a positive number");
}

TEST_F(HyperparametersTest, ReadsOneNumberPerLayer) {
  const std::uint32_t heads[] = {2, 2, 1, 1, 4, 4};
  gguf_set_arr_data(edited_.keys(), "qwen3.attention.head_count_kv", GGUF_TYPE_UINT32, heads, 6);
  const Result<Hyperparameters> hyper = read(edited_);
  ASSERT_TRUE(hyper.ok()) << hyper.status().message();
  EXPECT_EQ(hyper->attention[2].kv_heads, 1);
  EXPECT_EQ(hyper->attention[4].kv_heads, 4);
  EditedGguf shorter(dense_model());
  gguf_set_arr_data(shorter.keys(), "qwen3.attention.head_count_kv", GGUF_TYPE_UINT32, heads, 5);
  expect_refused(shorter, Code::kDamaged, "wanted 6 numbers, one for each layer, got 5");
}

TEST_F(HyperparametersTest, ReadsRopeScaling) {
  edited_.text("qwen3.rope.scaling.type", "yarn")
      .f32("qwen3.rope.scaling.factor", 4.f)
      .u32("qwen3.rope.scaling.original_context_length", 2048);
  const Result<Hyperparameters> yarn = read(edited_);
  ASSERT_TRUE(yarn.ok()) << yarn.status().message();
  EXPECT_FLOAT_EQ(yarn->rope.scale, 0.25f);
  EXPECT_FLOAT_EQ(yarn->rope.ext_factor, 1.f);
  EXPECT_FLOAT_EQ(yarn->rope.attn_factor, 1.f);  // ggml itself multiplies by 1 + 0.1 ln 4
  EXPECT_EQ(yarn->rope.original_context, 2048);
  EditedGguf none(dense_model());
  none.text("qwen3.rope.scaling.type", "none").f32("qwen3.rope.scaling.factor", 4.f);
  EXPECT_FLOAT_EQ(read(none)->rope.scale, 1.f);
}

TEST_F(HyperparametersTest, ReadsWindowAndScale) {
  edited_.u32("qwen3.attention.sliding_window", 1024).f32("qwen3.attention.scale", 0.5f);
  const Result<Hyperparameters> hyper = read(edited_);
  ASSERT_TRUE(hyper.ok()) << hyper.status().message();
  EXPECT_EQ(hyper->attention[0].sliding_window, 1024);
  EXPECT_FLOAT_EQ(hyper->attention[0].scale, 0.5f);
}

}  // namespace
}  // namespace neve::model
