// ggml's attention operators alone: one query token over keys and values of many layers, as a llama.cpp graph computes
// it. What `bench attend` sets neve's kernels beside.
//
// Keys and values lie per head, [kv_heads][tokens][head_dim]: no worse for ggml than llama.cpp's own order. Everything
// is allocated once; a pass only computes. Threads: one pass at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "neve/status.h"

namespace neve::model {

// kFlash: ggml_flash_attn_ext. kSoftmax: matrix product, softmax, matrix product, with transposed values, f16 only
// (transposed values cannot be quantised).
enum class AttentionPath { kFlash, kSoftmax };

struct PeerAttentionShape {
  int head_dim = 64;
  int kv_heads = 1;
  int gqa = 1;  // query heads per KV head
  int layers = 1;
  std::int64_t tokens = 0;  // in the cache
  int threads = 1;
};

class PeerGgmlAttention {
 public:
  // `type`: f16, q8_0, q4_0. Fills keys, values and queries with normally distributed numbers.
  // Errors: kInvalidArgument, kUnsupported (a quantised type on kSoftmax, blocks that do not divide a head), kExhausted.
  static Result<std::unique_ptr<PeerGgmlAttention>> create(const PeerAttentionShape& shape, const std::string& type,
                                                           AttentionPath path, std::uint64_t seed);
  ~PeerGgmlAttention();

  // One query token through all layers, in order. Errors: kInternal.
  Status pass();
  // Of a layer, after a pass: [query_heads][head_dim].
  std::span<const float> output(int layer) const;
  std::uint64_t bytes() const;  // of all keys and values

 private:
  struct Impl;
  explicit PeerGgmlAttention(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve::model
