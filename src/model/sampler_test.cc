#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "model/edited_gguf.h"

namespace neve::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SamplerTest : public testing::Test {
 protected:
  Sampler make(const SamplingOptions& options, AtEndToken at_end = AtEndToken::kStop) {
    return Sampler::create(*vocabulary_, options, at_end).value();
  }
  // How often each token is drawn.
  std::map<std::int32_t, int> draw(Sampler sampler, int times) {
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < times; ++i) ++counts[*sampler.sample(logits_)];
    return counts;
  }

  const GgufFile file_ = GgufFile::open(dense_model()).value();
  const std::unique_ptr<Vocabulary> vocabulary_ = Vocabulary::load(file_, 256).value();
  std::vector<float> logits_ = std::vector<float>(256, -20.f);
};

TEST_F(SamplerTest, ZeroTemperatureIsGreedy) {
  logits_[7] = 3.f;
  logits_[8] = 2.9f;
  EXPECT_EQ(draw(make({.temperature = 0.f}), 20), (std::map<std::int32_t, int>{{7, 20}}));
}

TEST_F(SamplerTest, DrawsByProbability) {
  logits_[7] = std::log(3.f);
  logits_[8] = 0.f;
  const auto counts = draw(make({.temperature = 1.f, .top_k = 0, .top_p = 1.f, .min_p = 0.f, .seed = 5}), 4000);
  EXPECT_NEAR(counts.at(7), 3000, 150);  // 5 standard deviations
  EXPECT_NEAR(counts.at(8), 1000, 150);
}

TEST_F(SamplerTest, CutsTheTail) {
  for (int i = 10; i < 20; ++i) logits_[static_cast<std::size_t>(i)] = static_cast<float>(i - 10) * 0.1f;
  EXPECT_EQ(draw(make({.temperature = 1.f, .top_k = 1, .top_p = 1.f, .min_p = 0.f}), 50).size(), 1u);
  EXPECT_LE(draw(make({.temperature = 1.f, .top_k = 3, .top_p = 1.f, .min_p = 0.f}), 200).size(), 3u);
  EXPECT_LE(draw(make({.temperature = 1.f, .top_k = 0, .top_p = 0.3f, .min_p = 0.f}), 200).size(), 3u);
  EXPECT_EQ(draw(make({.temperature = 1.f, .top_k = 0, .top_p = 1.f, .min_p = 0.95f}), 200).size(), 1u);
}

TEST_F(SamplerTest, CanLeaveOutEndTokens) {
  logits_[0] = 9.f;  // ends generation
  logits_[9] = 1.f;
  EXPECT_EQ(draw(make({.temperature = 0.f}), 1).begin()->first, 0);
  EXPECT_EQ(draw(make({.temperature = 0.f}, AtEndToken::kContinue), 1).begin()->first, 9);
}

TEST_F(SamplerTest, MindsNumbersThatAreNone) {
  logits_.assign(256, kNan);
  Sampler sampler = make({});
  EXPECT_EQ(sampler.sample(logits_).status().code(), Code::kNotFinite);
  logits_[42] = 0.f;
  EXPECT_EQ(*sampler.sample(logits_), 42);
}

TEST_F(SamplerTest, ChecksItsOptions) {
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = -1.f}, SamplingOptions{.temperature = kNan}, SamplingOptions{.top_k = -1},
        SamplingOptions{.top_p = 0.f}, SamplingOptions{.top_p = 1.5f}, SamplingOptions{.min_p = -0.1f}}) {
    EXPECT_EQ(Sampler::create(*vocabulary_, bad, AtEndToken::kStop).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace neve::model
