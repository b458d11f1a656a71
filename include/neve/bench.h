// Benchmarks: neve's caches side by side with ggml's attention and llama.cpp's caches, in one process and one run.
//
// Engines take turns (one sample of each, then the next), so that a machine that warms up or is shared treats all of
// them alike; a row carries the median and the best of its samples. Caches are filled with synthetic keys and values.
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

struct BenchControl {
  std::function<void(double fraction)> progress;
  std::function<bool()> cancelled;
};

struct AttendBenchOptions {
  std::vector<KvSpec> caches;  // llama:* stand for ggml's attention operators on that type
  std::vector<int> head_dims = {64, 128};
  std::vector<int> gqa = {1, 3, 4, 8};  // query heads per KV head
  std::int64_t depth_tokens = 16384;
  int kv_heads = 2;
  int threads = 2;
  // Layers are added until an int4 cache holds at least this much, and every pass walks through all of them: what a
  // pass reads has left the processor's caches since the pass before.
  std::uint64_t working_set_bytes = 200'000'000;
  int repeats = 5;
  std::uint64_t seed = 1;
  BenchControl control;
};

struct AttendBenchRow {
  std::string engine;  // "neve", "ggml"
  std::string kv;
  std::string path;  // what ran: the ISA of neve's kernels, "flash" or "softmax" of ggml
  int head_dim = 0, gqa = 0, layers = 0;
  std::int64_t tokens = 0;
  std::uint64_t bytes = 0;  // held by all layers
  double values_per_s = 0;  // cached key and value elements read per second, median of the samples
  double best_values_per_s = 0;
  double step_us = 0;  // one query token through one layer, median
  // This row's values_per_s over that of ggml's f16 and q4_0 rows of the same shape; 0 = they were not measured.
  double over_f16 = 0, over_q4_0 = 0;
};

// Times one query token's attention (and the merge of its parts) through every layer; nothing else is timed.
// Errors: kInvalidArgument, kCancelled, those of the caches.
Result<std::vector<AttendBenchRow>> bench_attend(const AttendBenchOptions& options);

struct DecodeBenchOptions {
  std::vector<KvSpec> caches;              // llama:* run in llama.cpp
  std::vector<std::int64_t> depths = {0};  // tokens in every sequence before the clock starts
  int sequences = 1;
  // > 0: instead of `sequences`, as many sequences of depths[i] tokens as fit into the bytes that this many take at 16 bit.
  int fit_f16_sequences = 0;
  std::int64_t decode_tokens = 32;    // steps per sample
  std::int64_t prefill_tokens = 512;  // per sample, one sequence; 0 = not measured
  int repeats = 3;
  int threads = 0;                 // 0 = as the model
  Demote demote = Demote::kPage;   // of `auto`
  std::uint64_t budget_bytes = 0;  // of `auto` without a width
  std::uint64_t seed = 1;
  BenchControl control;
};

struct DecodeBenchRow {
  std::string engine;  // "neve", "llama.cpp"
  std::string kv;
  std::int64_t depth = 0;
  int sequences = 0;
  double decode_tokens_per_s = 0;  // of all sequences together, median of the samples
  double best_decode_tokens_per_s = 0;
  double prefill_tokens_per_s = 0;  // 0 = not measured
  double best_prefill_tokens_per_s = 0;
  std::uint64_t kv_bytes = 0;  // held after the decode sample
  // This row's figure over that of llama.cpp's f16 row at the same depth; 0 = that was not measured.
  double decode_over_f16 = 0, prefill_over_f16 = 0;
};

// Decoding and prefill of a whole model. Errors: kInvalidArgument, kCancelled, those of caches and runner.
Result<std::vector<DecodeBenchRow>> bench_decode(const Model& model, const DecodeBenchOptions& options);

}  // namespace neve
