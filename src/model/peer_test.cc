// The peers do real work on the cache they are said to hold: what they are timed on is no empty loop.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/edited_gguf.h"
#include "model/peer_ggml_attention.h"
#include "model/peer_llama.h"
#include "model/peer_state.h"
#include "neve/model.h"

namespace neve::model {
namespace {

using Logits = std::vector<float>;

class PeerLlamaTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.threads = 1;
    model_ = Model::load(dense_model(), options).value();
  }
  static void TearDownTestSuite() { model_.reset(); }
  static std::unique_ptr<PeerLlama> make(PeerOptions options = {}) {
    options.threads = 1;
    auto peer = PeerLlama::create(*model_, options);
    EXPECT_TRUE(peer.ok()) << peer.status().message();
    return std::move(*peer);
  }
  static Logits copy(const Result<std::span<const float>>& logits) {
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.ok() ? Logits(logits->begin(), logits->end()) : Logits();
  }

  static std::unique_ptr<Model> model_;
  const std::vector<std::int32_t> text_ = std::vector<std::int32_t>(100, 'a');
};
std::unique_ptr<Model> PeerLlamaTest::model_;

TEST_F(PeerLlamaTest, LongStepsAreCutAndJoined) {
  PeerOptions small;
  small.batch = 32;
  const Logits whole = copy(make()->step(0, text_, false)), pieces = copy(make(small)->step(0, text_, false));
  ASSERT_EQ(whole.size(), text_.size() * 256);
  ASSERT_EQ(pieces.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(pieces[i], whole[i], 0.35);
  EXPECT_EQ(copy(make(small)->step(0, text_, true)), Logits(pieces.end() - 256, pieces.end()));
}

TEST_F(PeerLlamaTest, TruncateTakesTokensBack) {
  const auto peer = make();
  copy(peer->step(0, text_, true));
  const std::int32_t token[] = {'b'};
  const Logits first = copy(peer->step(0, token, true));
  EXPECT_EQ(peer->tokens(0), 101);
  ASSERT_TRUE(peer->truncate(0, 100).ok());
  EXPECT_EQ(copy(peer->step(0, token, true)), first);
  EXPECT_EQ(peer->truncate(0, 500).code(), Code::kInvalidArgument);
}

TEST_F(PeerLlamaTest, SequencesAreApart) {
  PeerOptions options;
  options.sequences = 3;
  options.context_tokens = 3 * 256;
  const auto peer = make(options);
  copy(peer->step(1, text_, true));
  const std::int32_t tokens[] = {'x', 'y', 'z'};
  const Logits all = copy(peer->step_all(tokens));
  ASSERT_EQ(all.size(), 3u * 256);
  EXPECT_EQ(peer->tokens(0), 1);
  EXPECT_EQ(peer->tokens(1), 101);
  const std::int32_t x[] = {'x'};
  const Logits alone = copy(make()->step(0, x, true));
  for (std::size_t i = 0; i < 256; ++i) EXPECT_NEAR(all[i], alone[i], 0.1);
}

// Synthetic keys and values are attended to: other seeds, other logits; the same seed, the same.
TEST_F(PeerLlamaTest, FillsEveryKindOfCache) {
  struct Kind {
    const char* type;
    FlashAttention flash;
  };
  for (const Kind kind :
       {Kind{"f16", FlashAttention::kOn}, Kind{"f16", FlashAttention::kOff}, Kind{"q8_0", FlashAttention::kOn},
        Kind{"q4_0", FlashAttention::kOn}, Kind{"f32", FlashAttention::kOff}}) {
    PeerOptions options;
    options.cache_type = kind.type;
    options.flash = kind.flash;
    options.sequences = 2;
    options.context_tokens = 2 * 2048;
    const auto peer = make(options);
    const std::int32_t token[] = {'q'};
    const auto logits = [&](std::uint64_t seed) {
      const Status filled = peer->fill_synthetic(1, 1000, seed);
      EXPECT_TRUE(filled.ok()) << kind.type << ": " << filled.message();
      EXPECT_EQ(peer->tokens(1), 1000);
      return copy(peer->step(1, token, true));
    };
    const Logits first = logits(1);
    EXPECT_NE(first, logits(2)) << kind.type;
    EXPECT_EQ(first, logits(1)) << kind.type;
    EXPECT_TRUE(std::all_of(first.begin(), first.end(), [](float x) { return std::isfinite(x); })) << kind.type;
  }
}

TEST_F(PeerLlamaTest, CountsItsBytes) {
  PeerOptions options;
  options.context_tokens = 1024;
  const std::uint64_t values = 6 * 2 * 2 * 64;  // layers, keys and values, heads, channels
  EXPECT_EQ(make(options)->kv_bytes(), 1024 * values * 2);
  EXPECT_EQ(make(options)->kv_bytes_for(10), 10 * values * 2);
  options.cache_type = "q4_0";
  EXPECT_EQ(make(options)->kv_bytes_for(32), 32 * values * 18 / 32);
}

TEST_F(PeerLlamaTest, RefusesWithAReason) {
  PeerOptions options;
  options.cache_type = "q5_k";
  EXPECT_EQ(PeerLlama::create(*model_, options).status().code(), Code::kInvalidArgument);
  options.cache_type = "q4_0";
  options.flash = FlashAttention::kOff;
  const Status status = PeerLlama::create(*model_, options).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("flash_attn"), std::string::npos) << status.message();
  PeerOptions tiny;
  tiny.context_tokens = 256;
  const auto peer = make(tiny);
  EXPECT_EQ(peer->fill_synthetic(0, 257, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(peer->step(1, text_, true).status().code(), Code::kNotFound);
  const std::int32_t outside[] = {300};
  EXPECT_EQ(peer->step(0, outside, true).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(peer->fill_synthetic(0, 256, 1).ok());
  EXPECT_EQ(peer->step(0, text_, true).status().code(), Code::kBudget);
}

// ---- ggml's operators alone ------------------------------------------------------------------------------------------

std::vector<float> as_floats(const std::vector<std::uint8_t>& rows, ggml_type type, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  ggml_get_type_traits(type)->to_float(rows.data(), out.data(), count);
  return out;
}

// Attention in double over the numbers that `create` draws (all rows: there are fewer than it repeats).
TEST(PeerGgmlAttention, ComputesAttention) {
  constexpr std::int64_t kTokens = 300, kDim = 64, kKvHeads = 2, kGqa = 3, kSeed = 5, kLayer = 1;
  for (const char* type : {"f16", "q8_0", "q4_0"}) {
    const ggml_type kind = type[0] == 'f' ? GGML_TYPE_F16 : type[1] == '8' ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
    const PeerAttentionShape shape = {
        .head_dim = kDim, .kv_heads = kKvHeads, .gqa = kGqa, .layers = 2, .tokens = kTokens, .threads = 1};
    const auto peer = PeerGgmlAttention::create(shape, type, AttentionPath::kFlash, kSeed);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    ASSERT_TRUE((*peer)->pass().ok());
    EXPECT_EQ((*peer)->bytes(), 2 * 2 * ggml_row_size(kind, kTokens * kDim * kKvHeads));
    const std::int64_t rows = kTokens * kKvHeads, count = rows * kDim;
    const auto keys = as_floats(random_rows(kind, rows, kDim, kSeed + 3 * kLayer), kind, count);
    const auto values = as_floats(random_rows(kind, rows, kDim, kSeed + 3 * kLayer + 1), kind, count);
    const auto queries = random_rows(GGML_TYPE_F32, kKvHeads * kGqa, kDim, kSeed + 3 * kLayer + 2);
    const auto* const query = reinterpret_cast<const float*>(queries.data());
    const std::span<const float> out = (*peer)->output(kLayer);
    ASSERT_EQ(out.size(), static_cast<std::size_t>(kKvHeads * kGqa * kDim));
    for (std::int64_t head = 0; head < kKvHeads * kGqa; ++head) {
      const std::int64_t first = head / kGqa * kTokens;
      std::vector<double> wanted(kDim, 0.0);
      double sum = 0;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        double dot = 0;
        for (std::int64_t c = 0; c < kDim; ++c) {
          dot += double{query[head * kDim + c]} * double{keys[static_cast<std::size_t>((first + t) * kDim + c)]};
        }
        const double weight = std::exp(dot / 8.0);
        sum += weight;
        for (std::int64_t c = 0; c < kDim; ++c) {
          wanted[static_cast<std::size_t>(c)] +=
              weight * double{values[static_cast<std::size_t>((first + t) * kDim + c)]};
        }
      }
      for (std::int64_t c = 0; c < kDim; ++c) {
        EXPECT_NEAR(out[static_cast<std::size_t>(head * kDim + c)], wanted[static_cast<std::size_t>(c)] / sum, 0.02)
            << type;
      }
    }
  }
}

TEST(PeerGgmlAttention, KnowsWhatDoesNotWork) {
  PeerAttentionShape shape = {.head_dim = 64, .kv_heads = 2, .gqa = 1, .layers = 1, .tokens = 256, .threads = 1};
  EXPECT_TRUE(PeerGgmlAttention::create(shape, "f16", AttentionPath::kSoftmax, 1).value()->pass().ok());
  EXPECT_EQ(PeerGgmlAttention::create(shape, "q8_0", AttentionPath::kSoftmax, 1).status().code(), Code::kUnsupported);
  EXPECT_EQ(PeerGgmlAttention::create(shape, "int4", AttentionPath::kFlash, 1).status().code(), Code::kInvalidArgument);
  shape.head_dim = 72;
  EXPECT_EQ(PeerGgmlAttention::create(shape, "q4_0", AttentionPath::kFlash, 1).status().code(), Code::kUnsupported);
  shape.tokens = 0;
  EXPECT_EQ(PeerGgmlAttention::create(shape, "f16", AttentionPath::kFlash, 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace neve::model
