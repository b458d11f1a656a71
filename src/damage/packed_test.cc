// What reading packed codes costs beside what the codes cost: decode rounds queries and softmax weights to 8 or 15 bits,
// prefill expands the same codes to floats and rounds nothing.
//
// Forks of one sequence share their coded pages, so both read the same codes: one takes the next tokens one by one, the
// other all at once.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <sstream>

#include "damage/divergence.h"
#include "model/runner.h"

namespace neve {
namespace {

using model::LogitRows;
using model::Runner;
using model::RunnerPart;

class PackedSlow : public testing::Test {
 protected:
  static constexpr int kNext = 6;  // tokens after a boundary: more than a decode step takes

  void SetUp() override {
    const std::string path = std::string(NEVE_MODEL_DIR) + "/smollm2-135m-instruct-q4_1.gguf";
    if (!std::ifstream(path).good()) GTEST_SKIP() << path << " is not there: tools/setup fetches it";
    LoadOptions options;
    options.threads = 2;
    options.weights = Weights::kF32;
    auto loaded = Model::load(path, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(*loaded);
    runner_ = Runner::create(*model_, 2).value();
    std::stringstream text;
    text << std::ifstream(std::string(NEVE_SOURCE_DIR) + "/LICENSE").rdbuf()
         << std::ifstream(std::string(NEVE_SOURCE_DIR) + "/CONTRIBUTING.md").rdbuf();
    tokens_ = model_->tokenize(text.str(), true).value();
    ASSERT_GT(tokens_.size(), 1100u);
    tokens_.resize(1100);
  }

  std::unique_ptr<KvCache> make_cache(const std::string& spec) const {
    CacheOptions options;
    options.spec = *parse_kv_spec(spec);
    options.max_tokens = 2048;
    options.max_sequences = 2;
    options.threads = 2;
    return KvCache::create(model_->info().layers, options).value();
  }

  std::vector<float> read(KvCache* cache, int sequence, std::span<const std::int32_t> tokens, LogitRows rows) const {
    const RunnerPart part = {.cache = cache, .sequence = sequence, .tokens = tokens, .logits = rows};
    const auto logits = runner_->step({&part, 1});
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  // Logits of the next tokens in a fork that is dropped again.
  std::vector<float> look_ahead(KvCache* cache, int sequence, std::span<const std::int32_t> next,
                                bool one_by_one) const {
    const int fork = cache->fork_sequence(sequence).value();
    std::vector<float> all;
    for (std::size_t i = 0; i < next.size(); i += one_by_one ? 1 : next.size()) {
      const std::vector<float> logits =
          read(cache, fork, next.subspan(i, one_by_one ? 1 : next.size()), LogitRows::kAll);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_TRUE(cache->remove_sequence(fork).ok());
    return all;
  }

  struct At {
    std::vector<float> at_once, one_by_one;
  };
  // At every boundary with coded pages behind it.
  std::vector<At> run(const std::string& spec) const {
    const auto cache = make_cache(spec);
    const int sequence = cache->add_sequence().value();
    std::vector<At> results;
    for (std::size_t at = 0; at + 128 + kNext < tokens_.size();) {
      const std::size_t stop = at == 0 ? 132 : at + 128;
      read(cache.get(), sequence, std::span(tokens_).subspan(at, stop - at), LogitRows::kNone);
      at = stop;
      if (at < 300) continue;
      const auto next = std::span(tokens_).subspan(at, kNext);
      results.push_back(
          {look_ahead(cache.get(), sequence, next, false), look_ahead(cache.get(), sequence, next, true)});
    }
    return results;
  }

  double divergence(std::span<const float> reference, std::span<const float> tested) const {
    damage::ReferenceRows rows(model_->info().vocabulary, 2);
    rows.set(reference);
    std::vector<damage::RowDamage> damage(kNext);
    rows.compare(0, tested, std::vector<std::int32_t>(kNext, -1), damage);
    return std::accumulate(damage.begin(), damage.end(), 0.0,
                           [](double sum, const damage::RowDamage& row) { return sum + row.kl; }) /
           kNext;
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_;
  std::vector<std::int32_t> tokens_;
};

TEST_F(PackedSlow, CostsAHundredthOfTheQuantisation) {
  const std::vector<At> exact = run("f16");
  double floor = 0;
  for (const At& at : exact) floor += divergence(at.at_once, at.one_by_one);
  for (const char* spec : {"int8", "int4", "int2", "graded:4", "graded:3", "graded:2"}) {
    const std::vector<At> coded = run(spec);
    ASSERT_EQ(coded.size(), exact.size());
    double quantisation = 0, packing = 0;
    for (std::size_t i = 0; i < coded.size(); ++i) {
      quantisation += divergence(exact[i].at_once, coded[i].at_once);
      packing += divergence(coded[i].at_once, coded[i].one_by_one);
    }
    const auto n = static_cast<double>(coded.size());
    std::printf("%-8s KL of the codes %.2e, of reading them packed %.2e, noise floor %.2e\n", spec, quantisation / n,
                packing / n, floor / n);
    EXPECT_LE(packing, std::max(0.01 * quantisation, floor)) << spec;
    EXPECT_GT(quantisation, floor) << spec;
  }
}

}  // namespace
}  // namespace neve
