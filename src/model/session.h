// One sequence of one model, its cache, and what is needed to read tokens into it and to write tokens out of it.
// `generate` uses a session once, a chat turn after turn.
//
// Threads: one call at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/runner.h"
#include "model/sampler.h"
#include "neve/generate.h"
#include "neve/kv_cache.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve::model {

class Session {
 public:
  // `model` must outlive the session. Errors: those of KvCache, Sampler and Runner.
  static Result<std::unique_ptr<Session>> create(const Model& model, const GenerateOptions& options);

  // Appends tokens, in chunks that the budget allows. Fills prompt_tokens, prefill times, and finish where the budget, the
  // context or the caller ended it; Returns: whether all were read. Errors: those of Runner::step but the budget's end.
  Result<bool> read(std::span<const std::int32_t> tokens, const GenerateCallbacks& callbacks, GenerateReport* report);
  // Samples tokens until one of the reasons to finish. Fills the rest of the report. Requires: `read` read all.
  Status write(const GenerateCallbacks& callbacks, GenerateReport* report);

  const KvCache& cache() const { return *cache_; }
  // What the cache holds, in order.
  const std::vector<std::int32_t>& held() const { return held_; }
  // Takes tokens back, the one that is not yet in the cache included.
  Status truncate(std::int64_t tokens);

  // A place to come back to. `back_to` fails quietly where more than the place was taken back in between.
  struct Mark {
    std::int64_t tokens = 0;
    std::optional<std::int32_t> pending;
  };
  Mark mark() const { return {std::ssize(held_), pending_}; }
  void back_to(const Mark& mark);

  // What the last `write` wrote, byte for byte.
  const std::string& written() const { return written_; }

 private:
  Session(const Model& model, const GenerateOptions& options, Sampler sampler)
      : model_(model), options_(options), sampler_(std::move(sampler)) {}

  // Why the cache takes no more, if it does not.
  std::optional<Finish> full() const;
  // Runs a step; `held_` and `logits_` follow. Returns: false where the budget ended it.
  Result<bool> step(std::span<const std::int32_t> tokens, LogitRows rows);
  void finish_report(GenerateReport* report) const;

  const Model& model_;
  const GenerateOptions options_;
  Sampler sampler_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<KvCache> cache_;
  int sequence_ = 0;
  std::vector<std::int32_t> held_;
  std::vector<float> logits_;            // [vocabulary] behind the last token
  std::optional<std::int32_t> pending_;  // sampled and shown, not yet in the cache
  std::string written_;
};

}  // namespace neve::model
