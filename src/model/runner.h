// Runs steps of a model: one ggml graph per step, with KvCache's append, attend and merge as custom operators on
// ggml's own threads. Rows of one step may belong to different caches (lockstep runs of several caches over the same
// tokens share all matrix products).
//
// The graphs of the last few shapes are kept, so a step of a shape that comes again allocates nothing.
// Threads: one step at a time; the graph uses `threads` threads of ggml's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "neve/kv_cache.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve::model {

enum class LogitRows { kNone, kLast, kAll };

// New tokens of one sequence of one cache. Parts of the same cache must follow each other.
struct RunnerPart {
  KvCache* cache = nullptr;
  int sequence = 0;
  std::span<const std::int32_t> tokens;
  LogitRows logits = LogitRows::kLast;
  std::span<const std::int32_t> positions = {};  // [tokens], or empty: from cache->tokens(sequence) on
};

class Runner {
 public:
  // `model` must outlive the runner. Errors: kInvalidArgument (threads), kExhausted.
  static Result<std::unique_ptr<Runner>> create(const Model& model, int threads);
  ~Runner();

  // Runs all parts in one graph: begin_step on every cache, the graph, commit_step on every cache.
  // Returns: logits of the rows asked for, in part order: [rows][vocabulary] f32, valid until the next step.
  // Errors: kInvalidArgument (a token outside the vocabulary, a cache of another geometry or with fewer slices than
  // there are threads, the parts of a cache apart), kExhausted, those of KvCache::begin_step: then nothing has happened
  // in any cache. Those of commit_step: the caches before it have counted the step, it and those behind it have not.
  Result<std::span<const float>> step(std::span<const RunnerPart> parts);

  std::int64_t compute_bytes() const;  // of the graphs' buffers

 private:
  struct Impl;
  explicit Runner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve::model
