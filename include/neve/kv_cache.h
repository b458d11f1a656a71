// The live KV cache: the keys and values of many sequences, packed, inside one byte budget.
//
// One step of a model:
//   begin_step(parts)                     secures memory for the new tokens (may demote); nothing later can fail for memory
//   per layer, each on all threads, a barrier between the three:
//     append(layer, slice, slices, ...)   stores the new keys and values at 16 bit
//     attend(layer, slice, slices, ...)   partial results over fixed runs of pages
//     merge(layer, slice, slices, ...)    joins them, in a fixed order
//   commit_step()                         the tokens count; pages whose time has come are coded or demoted
//
// Bytes: memory().bytes is what is held now, blocks, scale slots and spare blocks included; planning (`plan_cache`)
// runs the same allocator without memory, so both agree to the byte.
// Determinism: same tokens, same options, same ISA: same bytes and same results, whatever `slices` is.
// Threads: begin_step, commit_step and everything that changes sequences: one thread at a time. append, attend
// and merge: any number of threads, each with its own slice, 0 <= slice < slices <= CacheOptions::threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "neve/kv_spec.h"
#include "neve/status.h"

namespace neve {

// One attention layer. Key and value head sizes may differ.
struct LayerGeometry {
  int query_heads = 0;
  int kv_heads = 0;           // divides query_heads
  int key_dim = 0;            // channels of a key or query head, 1..576
  int value_dim = 0;          // channels of a value head, 1..576
  int sliding_window = 0;     // a query sees keys at positions > its own - sliding_window; 0 = all
  int shares_layer = -1;      // >= 0: reads the keys and values of that earlier layer and stores none
  float scale = 0.f;          // of q.k before softmax; 0 = 1/sqrt(key_dim)
  float logit_softcap = 0.f;  // > 0: scores pass through cap * tanh(score / cap)
};

// When codes are made. kSpread (running): a column's codes are made in the steps before it may be coded, a share
// per step. kAtBoundary (measuring): all at once. The codes are the same.
enum class CodingSchedule { kSpread, kAtBoundary };

struct CacheOptions {
  KvSpec spec;
  Demote demote = Demote::kPage;
  std::uint64_t budget_bytes = 0;  // 0 = none
  std::int64_t max_tokens = 8192;  // of one sequence: the context asked for
  int max_sequences = 1;
  int threads = 1;  // most slices
  CodingSchedule schedule = CodingSchedule::kSpread;
};

// New tokens of one sequence in a step. positions: [tokens], or null = continue by one.
struct StepPart {
  int sequence = 0;
  int tokens = 0;
  const std::int32_t* positions = nullptr;
};

// f32 rows of a step, all parts one after another: element (token, head, channel) is at
// data[token * token_stride + head * head_stride + channel]; strides in floats.
struct HeadRows {
  const float* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};
struct MutableHeadRows {
  float* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

struct CacheMemory {
  std::uint64_t bytes = 0;  // held now
  std::uint64_t peak_bytes = 0;
  std::uint64_t budget_bytes = 0;  // 0 = none
  // Blocks and scale slots by rung, free and spare blocks apart; they add up to `bytes`.
  std::uint64_t bytes_16 = 0, bytes_8 = 0, bytes_4 = 0, bytes_2 = 0, bytes_free = 0;
  std::uint64_t metadata_bytes = 0;   // page tables, positions, maps: beside `bytes`
  std::uint64_t workspace_bytes = 0;  // partial results and tiles: beside `bytes`
  std::uint64_t demotions = 0;        // blocks moved to a narrower rung (first coding included)
};

class KvCache {
 public:
  // Errors: kInvalidArgument, kUnsupported, kBudget (names the least budget that works), kExhausted.
  static Result<std::unique_ptr<KvCache>> create(std::vector<LayerGeometry> layers, CacheOptions options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  Result<int> add_sequence();
  // The copy shares all full pages (bytes counted once); the tail is copied. Errors: kBudget, kNotFound.
  Result<int> fork_sequence(int sequence);
  Status remove_sequence(int sequence);
  // Takes tokens back: the sequence keeps its first `tokens`.
  Status truncate(int sequence, std::int64_t tokens);
  std::int64_t tokens(int sequence) const;  // committed; -1 if there is no such sequence

  // The most tokens (<= wanted) that the next step of this sequence should hold: more than up to the end of the open
  // column only where their 16-bit form fits into free memory, so that coding is not put off. Whether they fit at all,
  // begin_step says.
  std::int64_t step_limit(int sequence, std::int64_t wanted) const;
  // The next length of the sequence at which pages change state.
  std::int64_t next_boundary(int sequence) const;

  // Errors: kBudget (the budget is full and everything stands at its last rung), kNotFound, kInvalidArgument.
  // After an error nothing has changed.
  Status begin_step(std::span<const StepPart> parts);
  void append(int layer, int slice, int slices, HeadRows queries, HeadRows keys, HeadRows values);
  void attend(int layer, int slice, int slices, HeadRows queries);
  void merge(int layer, int slice, int slices, MutableHeadRows out);
  // Errors: kNotFinite names layer, head and token of the first key or value that is not a number or beyond f16; the
  // step is dropped, as by abandon_step.
  Status commit_step();
  // Drops the step that was begun.
  void abandon_step();

  CacheMemory memory() const;
  const std::vector<LayerGeometry>& layers() const;
  const CacheOptions& options() const;

  // Fills a sequence with `tokens` synthetic tokens in the state that running them would leave (benchmarks): codes and
  // scales are plausible, work is that of the allocator, not of a model. Errors: as begin_step.
  Status fill_synthetic(int sequence, std::int64_t tokens, std::uint64_t seed);

  struct Impl;

 private:
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct CachePlan {
  std::uint64_t bytes = 0;  // held when every sequence has `tokens` tokens (or the capacity, if less)
  std::uint64_t peak_bytes = 0;
  std::uint64_t least_bytes = 0;     // least budget for `tokens` tokens in each sequence
  std::uint64_t f16_bytes = 0;       // the same at 16 bit throughout
  std::uint64_t budget_bytes = 0;    // in force: as asked, or what auto:W stands for; 0 = none
  std::int64_t capacity_tokens = 0;  // tokens per sequence at which the budget ends, at most options.max_tokens
  struct Layer {
    std::uint64_t bytes = 0;
    double key_bits = 0, value_bits = 0;  // mean payload bits per stored value
  };
  std::vector<Layer> layers;
};

// What `sequences` sequences that grow in step to `tokens` tokens each will hold. No memory is taken.
Result<CachePlan> plan_cache(const std::vector<LayerGeometry>& layers, const CacheOptions& options, std::int64_t tokens,
                             int sequences);

}  // namespace neve
