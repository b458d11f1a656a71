// The parts of a KvCache and what they do together. One source file per concern:
//   step.cc       begin, commit, abandon: memory for new tokens, and what happens at boundaries
//   demote.cc     plans and moves that make blocks narrower
//   sequences.cc  add, fork, truncate, remove
//   attend.cc     append, attend, merge: work items; decode_item.cc and attend_tile.cc compute them
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kv/demotion_queue.h"
#include "kv/page_coder.h"
#include "kv/sequence.h"
#include "kv/shape.h"
#include "kv/storage.h"
#include "neve/kv_cache.h"
#include "simd/isa.h"

namespace neve::kv {

inline constexpr int kRunColumns = 8;    // columns of one decode work item
inline constexpr int kDecodeTokens = 4;  // a part of at most so many tokens is attended token by token

// A part of the step that was begun.
struct ActivePart {
  Sequence* sequence = nullptr;
  std::int64_t first_row = 0;  // among the rows of the step
  int tokens = 0;
  bool tiled = false;         // attended by query tiles, not token by token
  std::int64_t runs = 0;      // decode: partial results per token and query head
  std::uint64_t partial = 0;  // floats from the start of the partial results
};

// A partial result of decode: the weighted sum, the largest score and the sum of weights.
inline std::uint64_t partial_floats(int value_dim) { return static_cast<std::uint64_t>(value_dim) + 2; }

}  // namespace neve::kv

namespace neve {

struct KvCache::Impl {
  Impl(kv::Shape shape_in, const CacheOptions& options_in, const simd::Kernels& kernels_in, kv::Storage storage_in);

  // The parts of a cache, for tests that look inside.
  static Impl& of(const KvCache& cache) { return *cache.impl_; }

  // --- what it is
  std::unique_ptr<kv::Shape> shape_owner;  // at a fixed address: storage and coder point to it
  const kv::Shape& shape;
  CacheOptions options;
  const simd::Kernels& kernels;
  std::vector<std::uint64_t> layer_budget;  // by stored layer, with demotion by layer; else empty
  std::vector<int> layer_level;             // the level on which a layer's coded pages stand

  // --- what it holds
  kv::Storage storage;
  kv::PageCoder coder;
  kv::DemotionQueue queue;
  std::vector<std::unique_ptr<kv::Sequence>> sequences;
  std::uint64_t peak_bytes = 0;
  std::uint64_t demotions = 0;

  // --- the step that was begun
  std::vector<kv::ActivePart> parts;
  std::vector<float> partials;
  std::vector<std::vector<float>> scratch;                 // by slice
  std::unique_ptr<std::atomic<std::int64_t>[]> next_item;  // by layer
  static constexpr std::int64_t kAllFinite = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> not_finite{kAllFinite};  // the first key or value that is none: (row, stored head, kind)

  bool by_layer() const { return !layer_budget.empty(); }
  bool by_page() const { return !by_layer() && options.spec.mode == KvMode::kAuto && options.budget_bytes > 0; }
  // Every page is coded as soon as it may be: the fixed widths.
  bool fixed() const { return options.spec.mode == KvMode::kFixed || options.spec.mode == KvMode::kGraded; }
  bool spread() const { return options.schedule == CodingSchedule::kSpread; }
  std::int64_t window() const { return options.spec.window; }
  std::int64_t sinks() const { return options.spec.sinks; }

  // --- cache.cc
  static Result<std::unique_ptr<KvCache>> make(std::vector<LayerGeometry> layers, CacheOptions options,
                                               kv::Backing backing);
  void set_layer_budgets();

  // --- plan.cc
  static Result<CachePlan> plan(const std::vector<LayerGeometry>& layers, const CacheOptions& options,
                                std::int64_t tokens, int sequences);
  std::vector<CachePlan::Layer> layer_plans() const;

  // --- sequences.cc
  kv::Sequence* find(int sequence) const;
  Status need_sequence(int sequence, kv::Sequence** found) const;
  // Gives up the columns from index `keep` on; pages that only waited for this sequence are coded.
  Status release_columns(kv::Sequence& s, std::size_t keep);
  void release_sinks(kv::Sequence& s);
  bool sees_freed_page(const kv::Sequence& s, std::int64_t tokens) const;

  // --- step.cc
  std::int64_t room(const kv::Sequence& s) const;  // tokens that fit without a new column
  std::int64_t new_columns(const kv::Sequence& s, std::int64_t tokens) const;
  std::int64_t next_event(const kv::Sequence& s) const;
  void count_columns(std::int64_t columns, kv::Change* change) const;
  Status over_budget(const kv::Change& need) const;
  Status add_column(kv::Sequence& s, std::int64_t first);
  Status advance(kv::Sequence& s, std::int64_t tokens);
  Status column_full(kv::Sequence& s, kv::Column& column);
  Status column_ready(kv::Column& column);
  Status settle_page(kv::PageId id);
  void learn_maps(kv::Sequence& s);
  std::int64_t leaves_at(const kv::Sequence& s, const kv::StoredLayer& layer) const;
  void free_left_behind(kv::Sequence& s);
  void note_peak();

  // --- demote.cc
  Status make_room(const kv::Change& need, std::int64_t columns);
  void plan_next_column(kv::Sequence& s);
  bool plan_moves(const kv::Change& need, const kv::Sequence* future, std::vector<kv::Move>* moves);
  kv::Change planned_change() const;  // of all moves and columns that sequences have planned and not yet made
  Status finish_ready_moves();
  Status demote_layers(std::int64_t columns);
  Status advance_moves(kv::Sequence& s);
  void forget_moves(kv::Sequence& s);
  Status make_move(const kv::Move& move);
  Status move_block(kv::PageId id, kv::Kind kind, int level);
  Status prepare_block(kv::PageId id, kv::Kind kind, int level);
  void switch_block(kv::PageId id, kv::Kind kind);

  // --- attend.cc, attend_tile.cc
  void start_attention();
  void note_not_finite(std::int64_t row, int stored_head, kv::Kind kind);
  Status finite_step() const;
  std::int64_t items_of(const kv::ActivePart& part, const LayerGeometry& layer) const;
  float* partial(const kv::ActivePart& part, const LayerGeometry& layer, std::int64_t token, int query_head,
                 std::int64_t run);
  void attend_item(int layer, const kv::ActivePart& part, std::int64_t item, HeadRows queries,
                   std::vector<float>* floats);
  void attend_tile(int layer, const kv::ActivePart& part, int head, int first_token, int tokens, HeadRows queries,
                   std::vector<float>* floats);
};

}  // namespace neve
