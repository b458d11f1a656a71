// What a cache says it holds against what the system says the process has.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "kv/small_cache.h"

namespace neve::kv {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowMemory = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kShadowMemory = true;
#else
constexpr bool kShadowMemory = false;
#endif
#else
constexpr bool kShadowMemory = false;
#endif

// Anonymous memory of this process in bytes; 0 if the system does not say.
double anonymous_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  double kilobytes = 0;
  while (file >> word) {
    if (word == "Anonymous:") file >> kilobytes;
  }
  return kilobytes * 1024.0;
}

TEST(MemoryGrowth, IsWhatTheCacheSays) {
  if (kShadowMemory || anonymous_bytes() == 0.0) GTEST_SKIP() << "the system's figure is not the process's own";
  const std::vector<LayerGeometry> layers = layers_of(12, 9, 3, 64, 64);
  for (const char* spec : {"f16", "int4", "graded:3", "auto"}) {
    SCOPED_TRACE(spec);
    // The open column stands where the last coded one was: all of it is touched.
    constexpr std::int64_t kTokens = 5 + 120 * 128;
    CacheOptions options = options_of(spec, kTokens);
    if (std::string(spec) == "auto") options.budget_bytes = std::uint64_t{40} << 20;
    Result<std::unique_ptr<KvCache>> cache = KvCache::create(layers, options);
    ASSERT_TRUE(cache.ok());
    const int s = *(*cache)->add_sequence();
    const std::vector<float> rows(128 * 9 * 64, 0.25f);
    const auto step = [&](std::int64_t tokens) {
      const StepPart part = {s, static_cast<int>(tokens), nullptr};
      ASSERT_TRUE((*cache)->begin_step({&part, 1}).ok());
      const HeadRows queries = {rows.data(), 9 * 64, 64}, heads = {rows.data(), 3 * 64, 64};
      for (int layer = 0; layer < 12; ++layer) (*cache)->append(layer, 0, 1, queries, heads, heads);
      ASSERT_TRUE((*cache)->commit_step().ok());
    };
    const CacheMemory first = (*cache)->memory();
    const double before = anonymous_bytes();
    while ((*cache)->tokens(s) < kTokens) {
      const std::int64_t stop = std::min({kTokens, (*cache)->next_boundary(s), (*cache)->tokens(s) + 128});
      step(stop - (*cache)->tokens(s));
      if (HasFatalFailure()) return;
    }
    const CacheMemory full = (*cache)->memory();
    const double grown = anonymous_bytes() - before;
    const auto blocks = static_cast<double>(full.bytes - first.bytes);
    const auto tables = static_cast<double>(full.metadata_bytes - first.metadata_bytes);
    // Tables may come from memory that the process has already.
    EXPECT_GE(grown, 0.98 * blocks);
    EXPECT_LE(grown, 1.02 * (blocks + tables));
  }
}

}  // namespace
}  // namespace neve::kv
