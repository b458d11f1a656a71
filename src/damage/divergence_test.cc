#include "damage/divergence.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace neve::damage {
namespace {

// The definition, in long double.
long double definition_kl(std::span<const float> a, std::span<const float> b) {
  auto lse = [](std::span<const float> x) {
    long double top = -INFINITY, sum = 0;
    for (float v : x) top = std::max(top, static_cast<long double>(v));
    for (float v : x) sum += std::exp(static_cast<long double>(v) - top);
    return top + std::log(sum);
  };
  const long double lse_a = lse(a), lse_b = lse(b);
  long double kl = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double log_p = static_cast<long double>(a[i]) - lse_a, log_q = static_cast<long double>(b[i]) - lse_b;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return kl;
}

std::vector<float> random_logits(std::size_t n, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, deviation);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

TEST(Divergence, EqualsTheDefinitionFromLargeToVanishingDifferences) {
  constexpr std::int64_t kVocabulary = 5000, kRows = 4;
  const std::vector<float> a = random_logits(kVocabulary * kRows, 3.f, 1);
  for (const float noise : {8.f, 1.f, 1e-1f, 1e-2f, 1e-3f, 1e-4f}) {
    std::vector<float> b = random_logits(a.size(), noise, 2);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] += a[i] + 7.f;  // a constant must not matter
    ReferenceRows reference(kVocabulary, 2);
    reference.set(a);
    ASSERT_EQ(reference.rows(), kRows);
    std::vector<RowDamage> rows(kRows);
    const std::vector<std::int32_t> next = {0, 17, 4999, -1};
    reference.compare(0, b, next, rows);
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::size_t first = row * static_cast<std::size_t>(kVocabulary);
      const std::span<const float> ra(a.data() + first, kVocabulary), rb(b.data() + first, kVocabulary);
      const double want = static_cast<double>(definition_kl(ra, rb));
      // Two logits may stand so close that adding the noise rounds: compare with the KL of what was stored.
      EXPECT_NEAR(rows[row].kl, want, 1e-11 + 1e-6 * want) << "noise " << noise << " row " << row;
      EXPECT_GE(rows[row].kl, -1e-13);
    }
    EXPECT_EQ(rows[3].nll, 0);
    EXPECT_GT(rows[1].nll, 0);
  }
}

TEST(Divergence, EqualRowsAreExactlyTheSame) {
  const std::vector<float> a = random_logits(3 * 1000, 4.f, 3);
  ReferenceRows reference(1000, 1);
  reference.set(a);
  std::vector<RowDamage> rows(2);
  const std::vector<std::int32_t> next = {5, 6};
  reference.compare(1, std::span(a).subspan(1000), next, rows);
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_NEAR(rows[row].kl, 0, 1e-11);
    EXPECT_TRUE(rows[row].same_top);
  }
}

TEST(Divergence, KnowsTheTopTokenAndTheNextTokensLikelihood) {
  const std::vector<float> a = {0.f, 2.f, 1.f};
  const std::vector<float> b = {0.f, 1.f, 2.f};
  ReferenceRows reference(3, 4);
  reference.set(a);
  std::vector<RowDamage> rows(1);
  const std::vector<std::int32_t> next = {2};
  reference.compare(0, b, next, rows);
  EXPECT_FALSE(rows[0].same_top);
  EXPECT_NEAR(rows[0].nll, std::log(1 + std::exp(1.) + std::exp(2.)) - 2, 1e-12);
}

TEST(Divergence, LogitsOfMinusInfinityInBothCountAsImpossibleAndNanShows) {
  ReferenceRows reference(3, 1);
  std::vector<RowDamage> rows(1);
  const std::vector<std::int32_t> next = {0};
  reference.set(std::vector<float>{1.f, 2.f, 3.f});
  reference.compare(0, std::vector<float>{1.f, std::numeric_limits<float>::quiet_NaN(), 3.f}, next, rows);
  EXPECT_TRUE(std::isnan(rows[0].kl));
}

// Cost: the damage table must not be dominated by its arithmetic (15 caches of 8192 tokens and 49152 words: 6e9 exp).
TEST(Divergence, CostsNanosecondsPerWord) {
  constexpr std::int64_t kVocabulary = 49152, kRows = 8;
  const std::vector<float> a = random_logits(kVocabulary * kRows, 3.f, 1), b = random_logits(a.size(), 3.f, 2);
  ReferenceRows reference(kVocabulary, 1);
  reference.set(a);
  std::vector<RowDamage> rows(kRows);
  const std::vector<std::int32_t> next(kRows, 0);
  const auto start = std::chrono::steady_clock::now();
  reference.compare(0, b, next, rows);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  RecordProperty("ns_per_word", std::to_string(spent.count() / (kVocabulary * kRows)));
  EXPECT_LT(spent.count() / (kVocabulary * kRows), 200) << "sanitizers and shared machines included";
}

}  // namespace
}  // namespace neve::damage
