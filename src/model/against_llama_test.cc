// neve's graph beside llama.cpp's own, on the same weights: every architecture, RoPE scaling and layout of weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llama.h"
#include "model/edited_gguf.h"
#include "model/model_impl.h"
#include "model/peer_llama.h"
#include "model/runner.h"
#include "neve/model.h"

namespace neve::model {
namespace {

using Logits = std::vector<float>;

// KL(p || q) in nats of two rows of logits.
double divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> row) {
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    return top + std::log(sum);
  };
  const double p_sum = log_sum(p), q_sum = log_sum(q);
  double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  return kl;
}
double mean_divergence(const Logits& p, const Logits& q, std::size_t vocabulary) {
  double sum = 0;
  for (std::size_t at = 0; at < p.size(); at += vocabulary) {
    sum += divergence(std::span(p).subspan(at, vocabulary), std::span(q).subspan(at, vocabulary));
  }
  return sum / static_cast<double>(p.size() / vocabulary);
}
float greatest_difference(const Logits& a, const Logits& b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

class Pair {
 public:
  Pair(const std::string& path, Weights weights) {
    LoadOptions options;
    options.threads = 1;
    options.weights = weights;
    Result<std::unique_ptr<Model>> model = Model::load(path, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    runner_ = Runner::create(*model_, 1).value();
  }
  const Model& model() const { return *model_; }
  std::size_t vocabulary() const { return static_cast<std::size_t>(model_->info().vocabulary); }

  // Logits of every token, in chunks.
  Logits neve(std::span<const std::int32_t> tokens, std::size_t chunk) const {
    CacheOptions options;
    options.spec = *parse_kv_spec("f16");
    options.max_tokens = std::ssize(tokens);
    const auto cache = KvCache::create(model_->info().layers, options).value();
    const int sequence = *cache->add_sequence();
    return run(tokens, chunk, [&](std::span<const std::int32_t> part) {
      const RunnerPart all = {.cache = cache.get(), .sequence = sequence, .tokens = part, .logits = LogitRows::kAll};
      return runner_->step({&all, 1});
    });
  }
  Logits llama(std::span<const std::int32_t> tokens, std::size_t chunk, FlashAttention flash) const {
    PeerOptions options;
    options.flash = flash;
    options.threads = 1;
    options.context_tokens = std::ssize(tokens);
    const auto peer = PeerLlama::create(*model_, options);
    EXPECT_TRUE(peer.ok()) << peer.status().message();
    return run(tokens, chunk, [&](std::span<const std::int32_t> part) { return (*peer)->step(0, part, false); });
  }

 private:
  template <typename Step>
  static Logits run(std::span<const std::int32_t> tokens, std::size_t chunk, const Step& step) {
    Logits all;
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      const Result<std::span<const float>> logits = step(tokens.subspan(at, std::min(chunk, tokens.size() - at)));
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      if (!logits.ok()) break;
      all.insert(all.end(), logits->begin(), logits->end());
    }
    return all;
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_;
};

std::vector<std::int32_t> some_bytes(std::size_t count) {
  const std::string text =
      "Glacier, a mass of ice that moves under its own weight. Snow that outlasts a summer is firn, or neve; what lies "
      "longest is packed tightest. #R ab=cd ef=gh ab=cd #S 6+1=7+5=2+9=1";
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<unsigned char>(text[i % text.size()]);
  return tokens;
}

class AgainstLlama : public testing::Test {
 protected:
  void SetUp() override {
    const char* const cache = std::getenv("NEVE_CACHE");
    outer_cache_ = cache == nullptr ? "" : cache;
    setenv("NEVE_CACHE", folder_.file("cache").c_str(), 1);  // of the f32 conversions
  }
  void TearDown() override {
    if (outer_cache_.empty()) unsetenv("NEVE_CACHE");
    if (!outer_cache_.empty()) setenv("NEVE_CACHE", outer_cache_.c_str(), 1);
  }

  // One token on the weights as they are: the same numbers. Many on f32 weights: no further apart than llama.cpp's
  // two ways of attention are, times two.
  static void expect_equal(const std::string& path, std::size_t tokens = 160) {
    const std::vector<std::int32_t> text = some_bytes(tokens);
    {
      const Pair as_stored(path, Weights::kFile);
      const std::span<const std::int32_t> first(text.data(), 1);
      EXPECT_EQ(as_stored.neve(first, 1), as_stored.llama(first, 1, FlashAttention::kOn));
    }
    const Pair f32(path, Weights::kF32);
    const Logits flash = f32.llama(text, 64, FlashAttention::kOn);
    const Logits softmax = f32.llama(text, 64, FlashAttention::kOff);
    const Logits neve = f32.neve(text, 64);
    ASSERT_EQ(neve.size(), flash.size());
    const double own = mean_divergence(flash, softmax, f32.vocabulary());
    const double ours = mean_divergence(flash, neve, f32.vocabulary());
    EXPECT_GT(own, 0.0);
    EXPECT_LE(ours, 2 * own);
    EXPECT_LE(greatest_difference(flash, neve), 2 * greatest_difference(flash, softmax));
    RecordProperty("kl", std::to_string(ours) + " of " + std::to_string(own));
  }

  ScratchFolder folder_;
  std::string outer_cache_;
};

TEST_F(AgainstLlama, Qwen3) { expect_equal(dense_model()); }

// The same weights under another architecture are another function; as good for comparing, as long as its scores stay
// small. Without the norms of qwen3 they would not: queries and keys are drawn anew.
void become(EditedGguf* edited, const char* architecture) {
  edited->architecture(architecture).drop("attn_q").drop("attn_k");
  for (int i = 0; i < 6; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    edited->add_matrix(block + "attn_q.weight", 256, 256, 1 / 16.f);
    edited->add_matrix(block + "attn_k.weight", 256, 128, 1 / 16.f);
  }
}

TEST_F(AgainstLlama, Llama) {
  EditedGguf edited(dense_model());
  become(&edited, "llama");
  expect_equal(edited.write(folder_.file("llama.gguf")));
}

TEST_F(AgainstLlama, LlamaWithFrequencyFactors) {
  EditedGguf edited(dense_model());
  become(&edited, "llama");
  edited.add_vector("rope_freqs.weight", 32, 4.f, 1.f);
  expect_equal(edited.write(folder_.file("factors.gguf")));
}

TEST_F(AgainstLlama, LlamaWithBiasesEverywhere) {
  EditedGguf edited(dense_model());
  become(&edited, "llama");
  for (int i = 0; i < 6; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    edited.add_vector(block + "attn_output.bias", 256, 0.f, 0.1f).add_vector(block + "ffn_gate.bias", 640, 0.f, 0.1f);
    edited.add_vector(block + "ffn_up.bias", 640, 0.f, 0.1f).add_vector(block + "ffn_down.bias", 256, 0.f, 0.1f);
  }
  expect_equal(edited.write(folder_.file("biases.gguf")));
}

TEST_F(AgainstLlama, Qwen2WithBiases) {
  EditedGguf edited(dense_model());
  become(&edited, "qwen2");
  for (int i = 0; i < 6; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    edited.add_vector(block + "attn_q.bias", 256, 0.f, 1.f).add_vector(block + "attn_k.bias", 128, 0.f, 1.f);
    edited.add_vector(block + "attn_v.bias", 128, 0.f, 0.1f);
  }
  expect_equal(edited.write(folder_.file("qwen2.gguf")));
}

TEST_F(AgainstLlama, LinearRopeScaling) {
  EditedGguf edited(dense_model());
  edited.text("qwen3.rope.scaling.type", "linear").f32("qwen3.rope.scaling.factor", 2.f);
  expect_equal(edited.write(folder_.file("linear.gguf")));
}

TEST_F(AgainstLlama, YarnRopeScaling) {
  EditedGguf edited(dense_model());
  edited.text("qwen3.rope.scaling.type", "yarn")
      .f32("qwen3.rope.scaling.factor", 4.f)
      .u32("qwen3.rope.scaling.original_context_length", 2048);
  expect_equal(edited.write(folder_.file("yarn.gguf")));
}

// Q4_0 has a faster layout on every CPU that ggml knows one for: joined products, a copy of the tied head.
TEST_F(AgainstLlama, RepackedWeights) {
  const std::string path = folder_.file("q4_0.gguf");
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_MOSTLY_Q4_0;
  params.allow_requantize = true;
  params.pure = true;
  ASSERT_EQ(llama_model_quantize(dense_model().c_str(), path.c_str(), &params), 0);
  expect_equal(path);
  LoadOptions options;
  options.threads = 1;
  const auto model = Model::load(path, options).value();
  EXPECT_GT(model->mapped_bytes(), 0);
  if (model->copied_bytes() == 0) GTEST_SKIP() << "this build of ggml repacks nothing";
  EXPECT_LT(model->mapped_bytes(), model->copied_bytes());  // embeddings and norms
}

TEST(AgainstLlamaSlow, SmolLM2) {
  const std::string path = std::string(NEVE_MODEL_DIR) + "/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: tools/setup fetches it";
  const Pair as_stored(path, Weights::kFile);
  const std::string text = read_bytes(std::string(NEVE_SOURCE_DIR) + "/CONTRIBUTING.md");
  std::vector<std::int32_t> tokens = *as_stored.model().tokenize(text, true);
  tokens.resize(std::min<std::size_t>(tokens.size(), 1024));
  const std::span<const std::int32_t> first(tokens.data(), 1);
  EXPECT_EQ(as_stored.neve(first, 1), as_stored.llama(first, 1, FlashAttention::kOn));

  const Pair f32(path, Weights::kF32);
  EXPECT_EQ(f32.model().info().fingerprint, as_stored.model().info().fingerprint);
  const Logits flash = f32.llama(tokens, 128, FlashAttention::kOn);
  const Logits softmax = f32.llama(tokens, 128, FlashAttention::kOff), neve = f32.neve(tokens, 128);
  const double own = mean_divergence(flash, softmax, f32.vocabulary());
  const double ours = mean_divergence(flash, neve, f32.vocabulary());
  EXPECT_LE(ours, 2 * own);
  std::printf("mean KL over %zu tokens, f32 weights: neve %.3g, llama.cpp's flash attention on and off %.3g\n",
              tokens.size(), ours, own);

  // The first positions word by word: nothing has averaged out there.
  const std::span<const std::int32_t> start(tokens.data(), 64);
  const auto of_start = [&](const Logits& all) {
    return Logits(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(64 * f32.vocabulary()));
  };
  const float on_off = greatest_difference(of_start(flash), of_start(softmax));
  const float batch_single = greatest_difference(of_start(flash), f32.llama(start, 1, FlashAttention::kOn));
  const float difference = greatest_difference(of_start(flash), of_start(neve));
  EXPECT_LE(difference, 2 * std::max(on_off, batch_single));
  std::printf(
      "greatest difference of logits, 64 positions: neve %.3g, llama.cpp's flash attention on and off %.3g, "
      "batch and token by token %.3g\n",
      static_cast<double>(difference), static_cast<double>(on_off), static_cast<double>(batch_single));
}

}  // namespace
}  // namespace neve::model
