// The peer: llama.cpp itself, through libllama, on the same weights, with its own KV cache.
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
  std::string cache_type = "f16";   // f16, q8_0, q4_0, f32
  FlashAttention flash = FlashAttention::kOn;
  std::int64_t context_tokens = 8192;  // of all sequences together
  int sequences = 1;
  int threads = 2;
  int batch = 512;
};

class PeerLlama {
 public:
  // `model` must have been loaded from a file; the peer loads (and shares between peers) its own llama_model of it.
  static Result<std::unique_ptr<PeerLlama>> create(const Model& model, const PeerOptions& options);
  ~PeerLlama();
  // Appends tokens to a sequence. Returns logits [tokens][vocabulary] (all rows) or [1][vocabulary] (last_only).
  Result<std::span<const float>> step(int sequence, std::span<const std::int32_t> tokens, bool last_only);
  // One token for each sequence 0..n-1 in one batch. Returns [n][vocabulary].
  Result<std::span<const float>> step_all(std::span<const std::int32_t> tokens);
  Status truncate(int sequence, std::int64_t tokens);
  // Fills a sequence with plausible synthetic keys and values (benchmarks), without running the model.
  Status fill_synthetic(int sequence, std::int64_t tokens, std::uint64_t seed);
  std::uint64_t kv_bytes() const;         // allocated for `context_tokens`
  std::uint64_t kv_bytes_for(std::int64_t tokens) const;

 private:
  struct Impl;
  explicit PeerLlama(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve::model
