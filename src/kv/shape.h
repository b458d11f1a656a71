// What a cache is made of, before any token: its layers, the rungs of its ladder and the bytes of every block.
//
// Every size of the cache comes from here; planner, allocator and accounts use these numbers and no others.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "neve/kv_cache.h"
#include "quant/block_layout.h"

namespace neve::kv {

inline constexpr int kPageTokens = quant::kPageTokens;

// A block is a key block or a value block.
enum Kind : int { kKey = 0, kValue = 1 };
inline constexpr std::array<Kind, 2> kKinds = {kValue, kKey};  // values first: they are demoted first

// A step of the ladder. Level 0 holds 16 bit; level 1 is the first coded one.
struct Level {
  std::array<double, 2> bits = {16, 16};  // mean payload by kind
};

// Where blocks of one kind of one layer live on a level.
struct Placement {
  int pool = 0;
  int order = 0;
};

// A layer that stores keys and values (layers that share another's do not).
struct StoredLayer {
  int layer = 0;
  int kv_heads = 0;
  int first_head = 0;  // index of head 0 among the heads of all stored layers
  int sliding_window = 0;
  std::array<int, 2> dim = {0, 0};
  std::array<int, 2> slot_pool = {0, 0};
  std::array<std::vector<Placement>, 2> placement;  // [kind][level]
  std::vector<quant::KeyLayout> key_layouts;        // [level], without a graded order; [0] is the 8-bit one
  std::vector<quant::ValueLayout> value_layouts;    // [level]; [0] is the 8-bit one
  std::uint64_t sink_bytes_per_token = 0;
};

struct PoolShape {
  std::uint64_t top_bytes = 0;
  int orders = 1;
  // Room is held for a block, with its scales, that stands twice while it moves to a narrower rung.
  bool has_spare = false;
  std::uint64_t most_slot_bytes = 0;  // of the scales of any block of this pool

  std::uint64_t units_per_top() const { return std::uint64_t{1} << (orders - 1); }
  // Held for `units` units (smallest blocks) in use, in whole top blocks, the room for moves included. A move needs at
  // most half a top block on a ladder; where that fits into the last top block in use, only its scales are apart.
  std::uint64_t held_bytes(std::uint64_t units) const {
    const std::uint64_t per_top = units_per_top(), spare = has_spare ? std::max<std::uint64_t>(1, per_top / 2) : 0;
    const std::uint64_t in_last = units % per_top;
    const bool fits = in_last > 0 && in_last + spare <= per_top;
    return (units + spare + per_top - 1) / per_top * top_bytes + (has_spare && fits ? most_slot_bytes : 0);
  }
};

struct Shape {
  std::vector<LayerGeometry> layers;
  std::vector<int> stored_of;  // layer -> index into stored
  std::vector<StoredLayer> stored;
  int heads = 0;  // of all stored layers
  std::vector<Level> levels;
  std::vector<PoolShape> pools;
  std::vector<std::uint64_t> slot_bytes;  // by slot pool
  bool graded = false;                    // key layouts need a map from the sequence's queries
  double graded_key_bits = 0;             // fixed graded: mean width of keys; 0 = by ladder

  int lowest() const { return static_cast<int>(levels.size()) - 1; }

  // Errors: kInvalidArgument, kUnsupported; the message names the layer and the numbers.
  static Result<Shape> create(std::vector<LayerGeometry> layers, const CacheOptions& options);

  // Bytes of a block of `kind` with its scales.
  std::uint64_t block_bytes(const StoredLayer& layer, Kind kind, int level) const;
  std::uint64_t sink_bytes(int sinks) const;
};

// Widths of a fixed graded cache: mean of keys and of values whose mean is `width`.
struct GradedWidths {
  double keys;
  int values;
};
GradedWidths split_width(double width);

// Sum of quad widths (bits) that a graded key block of `channels` may have at a mean of `bits`.
int graded_total_bits(int channels, double bits);

// Least budget with which `sequences` sequences reach `tokens` tokens: sinks, the columns that must stand at 16 bit,
// everything else at the lowest level, and one spare top block per pool; more only where that, in whole top blocks, does
// not hold them.
std::uint64_t least_bytes(const Shape& shape, const CacheOptions& options, std::int64_t tokens, int sequences);

// The same with everything at 16 bit, without spare blocks.
std::uint64_t f16_bytes(const Shape& shape, const CacheOptions& options, std::int64_t tokens, int sequences);

// Columns that a sequence of `tokens` tokens has.
std::int64_t columns_of(const KvSpec& spec, std::int64_t tokens);

}  // namespace neve::kv
