#include <algorithm>
#include <vector>

#include "eval/decode_engine.h"
#include "neve/kv_cache.h"

namespace neve::eval {
namespace {

// A prompt is read in pieces of at most this many tokens: llama.cpp's own physical batch.
constexpr std::int64_t kPrefillChunk = 512;

class NeveDecode final : public DecodeEngine {
 public:
  NeveDecode(model::Runner* runner, std::unique_ptr<KvCache> cache, std::vector<int> sequences)
      : runner_(runner), cache_(std::move(cache)), sequences_(std::move(sequences)) {}

  Status decode(std::span<const std::int32_t> tokens) override {
    parts_.clear();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      parts_.push_back({cache_.get(), sequences_[i], tokens.subspan(i, 1), model::LogitRows::kLast});
    }
    return runner_->step(parts_).status();
  }

  Status prefill(std::span<const std::int32_t> tokens) override {
    while (!tokens.empty()) {
      const std::int64_t wanted = std::min<std::int64_t>(std::ssize(tokens), kPrefillChunk);
      const std::int64_t takes = cache_->step_limit(sequences_.front(), wanted);
      if (takes < 1) return Status(Code::kBudget, "the budget ends before the prompt");
      const auto chunk = static_cast<std::size_t>(takes);
      const auto rows = chunk == tokens.size() ? model::LogitRows::kLast : model::LogitRows::kNone;
      const model::RunnerPart part = {cache_.get(), sequences_.front(), tokens.first(chunk), rows};
      const auto logits = runner_->step({&part, 1});
      if (!logits.ok()) return logits.status();
      tokens = tokens.subspan(chunk);
    }
    return ok_status();
  }

  std::uint64_t kv_bytes() const override { return cache_->memory().bytes; }

 private:
  model::Runner* runner_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int> sequences_;
  std::vector<model::RunnerPart> parts_;
};

}  // namespace

Result<std::unique_ptr<DecodeEngine>> make_neve_decode(const Model& model, model::Runner* runner,
                                                       const DecodeSetup& setup) {
  CacheOptions options;
  options.spec = setup.spec;
  options.demote = setup.demote;
  options.budget_bytes = setup.budget_bytes;
  options.max_tokens = setup.depth + setup.room;
  options.max_sequences = setup.sequences;
  options.threads = setup.threads;
  auto cache = KvCache::create(model.info().layers, options);
  if (!cache.ok()) return cache.status();
  std::vector<int> sequences;
  for (int i = 0; i < setup.sequences; ++i) {
    const auto sequence = (*cache)->add_sequence();
    if (!sequence.ok()) return sequence.status();
    sequences.push_back(*sequence);
  }
  if (setup.depth > 0) {
    for (const int sequence : sequences) {
      const std::uint64_t seed = setup.seed + static_cast<std::uint64_t>(sequence);
      NEVE_RETURN_IF_ERROR((*cache)->fill_synthetic(sequence, setup.depth, seed));
    }
  }
  return std::unique_ptr<DecodeEngine>(std::make_unique<NeveDecode>(runner, std::move(*cache), std::move(sequences)));
}

}  // namespace neve::eval
