// The peer: llama.cpp itself, through libllama, on the same weights, with its own KV cache.
//
// Peers of the same file share one llama_model. Every sequence has a stream of its own (kv_unified off), the faster way
// for sequences that share nothing. Threads: one call at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "neve/model.h"
#include "neve/status.h"

namespace neve::model {

enum class FlashAttention { kOff, kOn };

struct PeerOptions {
  std::string cache_type = "f16";  // f16, q8_0, q4_0, f32; of keys and values
  FlashAttention flash = FlashAttention::kOn;
  std::int64_t context_tokens = 8192;  // of all sequences together
  int sequences = 1;
  int threads = 2;
  int batch = 512;  // tokens that llama.cpp computes at once
};

class PeerLlama {
 public:
  // Errors: kInvalidArgument, kUnsupported (llama.cpp cannot run this with these options, with its reason), kExhausted.
  static Result<std::unique_ptr<PeerLlama>> create(const Model& model, const PeerOptions& options);
  ~PeerLlama();
  // Appends tokens to a sequence. Returns: logits [tokens][vocabulary] (all rows) or [1][vocabulary] (last_only), valid
  // until the next step. Errors: kInvalidArgument, kBudget (the context is full), kInternal.
  Result<std::span<const float>> step(int sequence, std::span<const std::int32_t> tokens, bool last_only);
  // One token for each sequence 0..n-1 in one batch. Returns: [n][vocabulary].
  Result<std::span<const float>> step_all(std::span<const std::int32_t> tokens);
  // Takes tokens back: the sequence keeps its first `tokens`.
  Status truncate(int sequence, std::int64_t tokens);
  // Fills a sequence with plausible synthetic keys and values (benchmarks), without running the model. What it held
  // before is gone. Cost: a copy of the sequence's cache in memory for the moment.
  Status fill_synthetic(int sequence, std::int64_t tokens, std::uint64_t seed);
  std::int64_t tokens(int sequence) const;
  std::uint64_t kv_bytes() const;                                  // allocated, for all of the context
  std::uint64_t kv_bytes_for(std::int64_t sequence_tokens) const;  // what the rows of so many tokens take

 private:
  struct Impl;
  explicit PeerLlama(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve::model
