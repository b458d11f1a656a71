// How many sequences fit into the memory that a few take at 16 bit.
#pragma once

#include <cstdint>

#include "neve/kv_cache.h"
#include "neve/model.h"

namespace neve::eval {

struct FitRequest {
  KvSpec spec;
  Demote demote = Demote::kPage;
  std::int64_t tokens = 0;         // of each sequence
  std::uint64_t memory_bytes = 0;  // all sequences together
  int threads = 1;
};

// The bytes that neve's cache holds for `sequences` sequences of `tokens` tokens at 16 bit.
Result<std::uint64_t> f16_bytes(const Model& model, std::int64_t tokens, int sequences, int threads);

// The most sequences whose planned bytes are within memory_bytes; for `auto`, whose least budget is: it will stand at
// its last rungs where it must. For llama.cpp's caches, by their size per token. 0 if not even one fits.
// Cost: a plan per candidate, found by doubling and halving.
Result<int> fit_sequences(const Model& model, const FitRequest& request);

}  // namespace neve::eval
