// Several sequences inside one budget: never more bytes than it, and the least budget suffices.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kv/cache_impl.h"
#include "kv/small_cache.h"

namespace neve::kv {
namespace {

CachePlan plan_of(const CacheOptions& options, std::int64_t tokens, int sequences) {
  Result<CachePlan> plan = plan_cache(layers_of(3, 4, 2, 16, 16), options, tokens, sequences);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : CachePlan();
}

TEST(SharedBudget, LockstepStaysInsideAndTheLeastSuffices) {
  constexpr std::int64_t kTokens = 1500;
  for (int sequences = 1; sequences <= 9; ++sequences) {
    CacheOptions options = options_of("auto", kTokens, std::uint64_t{1} << 30, sequences);
    const CachePlan roomy = plan_of(options, kTokens, sequences);
    for (const double share : {0.0, 0.05, 0.2, 0.5, 0.9}) {
      options.budget_bytes = roomy.least_bytes + static_cast<std::uint64_t>(
                                                     share * static_cast<double>(roomy.f16_bytes - roomy.least_bytes));
      const CachePlan plan = plan_of(options, kTokens, sequences);
      EXPECT_LE(plan.peak_bytes, options.budget_bytes) << sequences << " sequences, share " << share;
      EXPECT_EQ(plan.capacity_tokens, kTokens) << sequences << " sequences, share " << share;
    }
  }
}

TEST(SharedBudget, SequencesThatStandStillDoNotBlockOthers) {
  constexpr std::int64_t kTokens = 1200;
  CacheOptions options = options_of("auto", kTokens, std::uint64_t{1} << 30, 4);
  options.budget_bytes = plan_of(options, kTokens, 4).least_bytes;
  Result<std::unique_ptr<KvCache>> made = KvCache::create(layers_of(3, 4, 2, 16, 16), options);
  ASSERT_TRUE(made.ok());
  KvCache& cache = **made;
  std::vector<int> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(cache.add_sequence().value());
  // Any order of progress: the least budget holds all of them at the end.
  std::mt19937 random(7);
  for (int left = 4; left > 0;) {
    const int id = ids[random() % 4];
    const std::int64_t at = cache.tokens(id);
    if (at == kTokens) continue;
    const std::int64_t stop =
        std::min({kTokens, cache.next_boundary(id), at + 1 + static_cast<std::int64_t>(random() % 60)});
    const StepPart part = {id, static_cast<int>(stop - at), nullptr};
    const Status begun = cache.begin_step({&part, 1});
    ASSERT_TRUE(begun.ok()) << begun.message() << " at " << at << " of sequence " << id;
    ASSERT_LE(cache.memory().bytes, options.budget_bytes);
    ASSERT_TRUE(cache.commit_step().ok());
    ASSERT_LE(cache.memory().peak_bytes, options.budget_bytes);
    if (stop == kTokens) --left;
  }
}

}  // namespace
}  // namespace neve::kv
