// Damage: how far a cache moves a model's next-token distributions from those of its own 16-bit cache.
//
// All caches and the reference read the same tokens in lockstep (teacher forcing), a chunk at a time. Chunks are at
// most 128 tokens and end where a cache changes state, so a token sees of the past what decoding would show it.
// No logits are stored: 8192 tokens cost minutes, and memory for one chunk.
//
// KL is KL(16 bit || tested) of the next-token distribution, in nats. Give `measure_damage` a model loaded with
// Weights::kF32: on quantised weights matrix products round their activations, and that noise hides an 8-bit cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "neve/kv_cache.h"
#include "neve/kv_spec.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve {

// What is read, and what to call it in a report.
struct EvalText {
  std::vector<std::int32_t> tokens;
  std::string source;  // a path, or how the model's own text was sampled
};

// The first `tokens` tokens of a text file; fewer when the file is shorter (compare tokens.size()).
// Errors: kNotFound, kInvalidArgument (an empty file, tokens < 2).
Result<EvalText> read_eval_text(const Model& model, const std::string& path, std::int64_t tokens);

struct OwnTextOptions {
  std::int64_t tokens = 2048;
  int segments = 8;        // samples of tokens/segments tokens, put one after another
  std::uint64_t seed = 1;  // of the first segment; the others count on from it
  int threads = 0;         // 0 = as the model
  std::function<void(double fraction)> progress;
  std::function<bool()> cancelled;
};

// The model's own text: sampled at temperature 1 with a 16-bit cache, all segments in one batch. Several segments,
// because a long sample tends to fall into a loop, and a loop is so easy to predict that every cache looks good.
// Deterministic for a seed, model, machine and thread count.
// Errors: kInvalidArgument, kCancelled, those of the runner.
Result<EvalText> sample_own_text(const Model& model, const OwnTextOptions& options);

struct DamageOptions {
  std::vector<KvSpec> caches;       // llama:* among them run llama.cpp's own cache
  Demote demote = Demote::kPage;    // of `auto`
  std::uint64_t budget_bytes = 0;   // of `auto` without a width; 0 = none
  int threads = 0;                  // 0 = as the model
  std::int64_t position_step = 64;  // tokens per entry of kl_by_position
  std::function<void(double fraction)> progress;
  std::function<bool()> cancelled;
};

struct DamageRow {
  std::string engine;                             // "neve", "llama.cpp"
  std::string kv;                                 // the spec as typed
  std::int64_t tokens = 0;                        // read; fewer than the text has if the budget ended first
  std::uint64_t bytes = 0;                        // that the cache holds at the end, tail and sinks included
  double bits_per_value = 0;                      // bytes * 8 / values that stand for these tokens
  double kl_mean = 0, kl_median = 0, kl_p99 = 0;  // nats
  double top1 = 0;                                // share of positions whose likeliest token is the reference's, 0..1
  double nll = 0;                                 // mean -log p of the token that came next, nats
  double perplexity = 0;                          // exp(nll)
  double bits_per_byte = 0;                       // of the text: sum of -log2 p over the bytes of those tokens
  std::vector<double> kl_by_position;             // mean KL of position_step positions each
};

struct DamageReport {
  std::vector<DamageRow> rows;  // in the order of DamageOptions::caches
  DamageRow reference;          // the 16-bit run itself (KL 0)
  DamageRow noise;              // the 16-bit run with another batch split: the noise floor
  std::int64_t tokens = 0;      // of the text
  int batches_per_chunk = 0;    // graph runs that neve's caches needed for one chunk
};

// Cost: one pass of the model over the text per cache, plus two. Memory: the caches, and about 1/4 GiB of logits.
// Errors: kInvalidArgument (no caches, fewer than 2 tokens), kCancelled, those of the caches and of the runner.
Result<DamageReport> measure_damage(const Model& model, const EvalText& text, const DamageOptions& options);

}  // namespace neve
