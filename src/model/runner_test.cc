#include "model/runner.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model/edited_gguf.h"

namespace neve::model {
namespace {

using Logits = std::vector<float>;
constexpr std::size_t kVocabulary = 256;

std::vector<std::int32_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class RunnerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.threads = 1;
    model_ = Model::load(dense_model(), options).value();
  }
  static void TearDownTestSuite() { model_.reset(); }

  static std::unique_ptr<KvCache> make_cache(const std::string& spec = "f16", std::int64_t tokens = 1024,
                                             int threads = 1) {
    CacheOptions options;
    options.spec = *parse_kv_spec(spec);
    options.max_tokens = tokens;
    options.max_sequences = 4;
    options.threads = threads;
    auto cache = KvCache::create(model_->info().layers, options);
    EXPECT_TRUE(cache.ok()) << cache.status().message();
    EXPECT_EQ(*(*cache)->add_sequence(), 0);
    return std::move(*cache);
  }
  Logits step(std::span<const RunnerPart> parts) {
    const auto logits = runner_->step(parts);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.ok() ? Logits(logits->begin(), logits->end()) : Logits();
  }
  Logits step(KvCache* cache, std::span<const std::int32_t> tokens, LogitRows rows = LogitRows::kAll) {
    const RunnerPart part = {.cache = cache, .sequence = 0, .tokens = tokens, .logits = rows};
    return step({&part, 1});
  }
  void expect_refused(const RunnerPart& part, const std::string& why) {
    const auto logits = runner_->step({&part, 1});
    ASSERT_FALSE(logits.ok());
    EXPECT_NE(logits.status().message().find(why), std::string::npos) << logits.status().message();
  }
  static Logits row(const Logits& all, std::size_t index) {
    const auto start = all.begin() + static_cast<std::ptrdiff_t>(index * kVocabulary);
    return Logits(start, start + kVocabulary);
  }

  static std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_ = Runner::create(*model_, 1).value();
  const std::vector<std::int32_t> text_ = bytes_of("Snow that outlasts a summer is firn. What lies longest is packed.");
};
std::unique_ptr<Model> RunnerTest::model_;

TEST_F(RunnerTest, GivesTheRowsAskedFor) {
  const Logits all = step(make_cache().get(), text_);
  ASSERT_EQ(all.size(), text_.size() * kVocabulary);
  EXPECT_EQ(step(make_cache().get(), text_, LogitRows::kLast), row(all, text_.size() - 1));
  EXPECT_TRUE(step(make_cache().get(), text_, LogitRows::kNone).empty());
}

// The last layer's keys and values are stored even where nothing behind them is wanted.
TEST_F(RunnerTest, ReadsWithoutLogitsAndGoesOn) {
  const std::span<const std::int32_t> text(text_);
  const auto whole = make_cache(), parts = make_cache();
  const Logits all = step(whole.get(), text);
  step(parts.get(), text.first(30), LogitRows::kNone);
  EXPECT_EQ(parts->tokens(0), 30);
  EXPECT_EQ(step(parts.get(), text.subspan(30), LogitRows::kLast), row(all, text.size() - 1));
}

// One token and many take other kernels, and Q8_0 weights make steps of what they differ by.
TEST_F(RunnerTest, CutsHardlyMatterAt16Bit) {
  const Logits all = step(make_cache().get(), text_);
  const auto cache = make_cache();
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const Logits one = step(cache.get(), std::span(text_).subspan(i, 1)), batch = row(all, i);
    for (std::size_t j = 0; j < kVocabulary; ++j) ASSERT_NEAR(one[j], batch[j], 0.35) << "token " << i;
  }
}

TEST_F(RunnerTest, CachesInOneStepDoNotMeet) {
  const auto alone16 = make_cache("f16"), alone4 = make_cache("int4");
  const auto both16 = make_cache("f16"), both4 = make_cache("int4");
  const std::vector<std::int32_t> text = [&] {
    std::vector<std::int32_t> longer;
    for (int i = 0; i < 6; ++i) longer.insert(longer.end(), text_.begin(), text_.end());
    return longer;
  }();
  for (std::size_t at = 0; at < text.size(); at += 65) {
    const auto chunk = std::span(text).subspan(at, 65);
    Logits expected = step(alone16.get(), chunk);
    const Logits four = step(alone4.get(), chunk);
    if (at + 65 == text.size()) {
      EXPECT_NE(expected, four);  // pages have been coded
    }
    expected.insert(expected.end(), four.begin(), four.end());
    const RunnerPart parts[] = {
        {.cache = both16.get(), .sequence = 0, .tokens = chunk, .logits = LogitRows::kAll},
        {.cache = both4.get(), .sequence = 0, .tokens = chunk, .logits = LogitRows::kAll},
    };
    EXPECT_EQ(step(parts), expected);
  }
}

TEST_F(RunnerTest, SequencesOfUnequalLengthInOneStep) {
  const auto cache = make_cache(), other = make_cache();
  ASSERT_EQ(*cache->add_sequence(), 1);
  const std::vector<std::int32_t> second = bytes_of("#R ab=cd ");
  const RunnerPart parts[] = {
      {.cache = cache.get(), .sequence = 0, .tokens = text_, .logits = LogitRows::kLast},
      {.cache = cache.get(), .sequence = 1, .tokens = second, .logits = LogitRows::kAll},
  };
  const Logits together = step(parts);
  ASSERT_EQ(together.size(), (1 + second.size()) * kVocabulary);
  EXPECT_EQ(row(together, second.size()), step(make_cache().get(), second, LogitRows::kLast));
  EXPECT_EQ(row(together, 0), step(other.get(), text_, LogitRows::kLast));
}

TEST_F(RunnerTest, TakesPositions) {
  std::vector<std::int32_t> positions(text_.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto plain = make_cache(), same = make_cache(), shifted = make_cache(), dropped = make_cache();
  RunnerPart part = {
      .cache = same.get(), .sequence = 0, .tokens = text_, .logits = LogitRows::kLast, .positions = positions};
  const Logits expected = step(plain.get(), text_, LogitRows::kLast);
  EXPECT_EQ(step({&part, 1}), expected);
  // RoPE knows distances only: all positions moved by as much change nothing but the last bits.
  for (std::int32_t& position : positions) position += 500;
  part.cache = shifted.get();
  const Logits moved = step({&part, 1});
  for (std::size_t i = 0; i < kVocabulary; ++i) EXPECT_NEAR(moved[i], expected[i], 0.35) << i;
  // Every third position left out is another text.
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i + i / 2);
  part.cache = dropped.get();
  EXPECT_NE(step({&part, 1}), expected);
}

TEST_F(RunnerTest, ThreadsDoNotChangeTheResult) {
  const auto runner = Runner::create(*model_, 2).value();
  const auto cache = make_cache("int4", 1024, 2);
  const RunnerPart part = {.cache = cache.get(), .sequence = 0, .tokens = text_, .logits = LogitRows::kAll};
  const auto logits = runner->step({&part, 1});
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_EQ(Logits(logits->begin(), logits->end()), step(make_cache("int4").get(), text_));
}

TEST_F(RunnerTest, KeepsGraphsOfShapesThatComeAgain) {
  const auto cache = make_cache();
  step(cache.get(), std::span(text_).first(20));
  step(cache.get(), std::span(text_).first(1));
  const std::int64_t bytes = runner_->compute_bytes();
  EXPECT_GT(bytes, 0);
  for (int i = 0; i < 5; ++i) step(cache.get(), std::span(text_).first(i % 2 == 0 ? 1 : 20));
  EXPECT_EQ(runner_->compute_bytes(), bytes);
}

TEST_F(RunnerTest, RefusesWhatMakesNoSense) {
  const auto cache = make_cache(), second = make_cache();
  const std::int32_t outside[] = {3, 256};
  expect_refused({.cache = cache.get(), .tokens = outside}, "token 256 is outside the vocabulary of 256");
  expect_refused({.cache = cache.get(), .tokens = {}}, "without tokens");
  expect_refused({.cache = nullptr, .tokens = text_}, "without a cache");
  expect_refused({.cache = cache.get(), .sequence = 7, .tokens = text_}, "no sequence 7");
  const std::int32_t one_position[] = {0};
  expect_refused({.cache = cache.get(), .tokens = text_, .positions = one_position}, "as many positions as tokens");
  auto layers = model_->info().layers;
  layers[3].kv_heads = 4;
  const auto other = KvCache::create(layers, CacheOptions{}).value();
  ASSERT_TRUE(other->add_sequence().ok());
  expect_refused({.cache = other.get(), .tokens = text_}, "made for other layers");
  const RunnerPart apart[] = {{.cache = cache.get(), .tokens = text_},
                              {.cache = second.get(), .tokens = text_},
                              {.cache = cache.get(), .tokens = text_}};
  EXPECT_EQ(runner_->step(apart).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->tokens(0), 0);
  EXPECT_EQ(second->tokens(0), 0);
  const auto two = Runner::create(*model_, 2).value();
  const RunnerPart part = {.cache = cache.get(), .tokens = text_};
  EXPECT_EQ(two->step({&part, 1}).status().code(), Code::kInvalidArgument);  // a cache for one thread
  EXPECT_FALSE(Runner::create(*model_, 0).ok());
}

// One cache of two is full: neither counts the step.
TEST_F(RunnerTest, AStepThatOneCacheRefusesHappensInNone) {
  const auto roomy = make_cache(), full = make_cache("f16", 8);
  const RunnerPart parts[] = {{.cache = roomy.get(), .tokens = text_}, {.cache = full.get(), .tokens = text_}};
  const auto logits = runner_->step(parts);
  ASSERT_FALSE(logits.ok());
  EXPECT_EQ(roomy->tokens(0), 0);
  EXPECT_EQ(full->tokens(0), 0);
  EXPECT_EQ(step(roomy.get(), text_, LogitRows::kLast), step(make_cache().get(), text_, LogitRows::kLast));
}

}  // namespace
}  // namespace neve::model
