// What attention reads of one column for one KV head: the page as it stands, and which of its tokens a query sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kv/cache_impl.h"
#include "quant/shift.h"

namespace neve::kv {

struct BlockView {
  int level = 0;
  const std::uint8_t* codes = nullptr;   // level 0: f16 [tokens][dim]
  const std::uint16_t* scale = nullptr;  // coded: see quant/block_layout.h
  const std::uint16_t* min = nullptr;

  const std::uint16_t* numbers() const { return reinterpret_cast<const std::uint16_t*>(codes); }
};

inline BlockView view_block(const Storage& storage, const Shape& shape, const Page& page, Kind kind) {
  const Stand& stand = page.now[kind];
  BlockView view;
  view.level = stand.level;
  view.codes = storage.codes(page, kind, stand);
  if (stand.level > 0) {
    const int pool = shape.stored[page.stored].slot_pool[kind];
    view.scale = storage.scales(page, kind, stand);
    view.min = view.scale + shape.slot_bytes[static_cast<std::size_t>(pool)] / 4;
  }
  return view;
}

// The sinks of one KV head that a query at index `end` - 1 sees, 16 bit.
struct SinkView {
  int tokens = 0;
  const std::uint16_t* keys = nullptr;    // [tokens][key_dim] f16
  const std::uint16_t* values = nullptr;  // [tokens][value_dim] f16
};

inline SinkView view_sinks(const Sequence& s, const Shape& shape, int stored, int head, std::int64_t sinks,
                           std::int64_t end) {
  SinkView view;
  view.tokens = static_cast<int>(std::min(sinks, end));
  if (view.tokens == 0) return view;
  const StoredLayer& layer = shape.stored[static_cast<std::size_t>(stored)];
  const std::uint16_t* block = s.sinks->layers[static_cast<std::size_t>(stored)].data();
  view.keys = block + head * sinks * layer.dim[kKey];
  view.values = block + layer.kv_heads * sinks * layer.dim[kKey] + head * sinks * layer.dim[kValue];
  return view;
}

// Tokens of a column that the query at index `index` of the sequence may see, sliding windows aside.
inline int visible_tokens(const Column& column, std::int64_t index) {
  const std::int64_t held = column.closed ? column.tokens : kPageTokens;
  return static_cast<int>(std::clamp<std::int64_t>(index + 1 - column.first, 0, held));
}

// First of `count` tokens from index `first` whose position a query at `position` still sees. Positions rise.
inline int first_visible(const Sequence& s, std::int64_t first, int count, std::int32_t position, int sliding_window) {
  if (sliding_window == 0) return 0;
  const auto begin = s.positions.begin() + first;
  return static_cast<int>(std::upper_bound(begin, begin + count, position - sliding_window) - begin);
}

inline std::uint64_t scale_bytes(const Shape& shape, const StoredLayer& layer, Kind kind) {
  return shape.slot_bytes[static_cast<std::size_t>(layer.slot_pool[kind])];
}

// Asks for memory that is read soon. kFirstBytes: enough of a block to cover the time until the kernel asks for the rest.
inline constexpr std::uint64_t kFirstBytes = 2048;
inline void prefetch(const void* data, std::uint64_t bytes) {
  const char* at = static_cast<const char*>(data);
  for (std::uint64_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(at + offset);
}

// Whether keys of this width meet 15 bits (two int8 halves) and not 8: docs/kernels.md says what that costs.
constexpr bool key_takes_two_halves(int bits) { return bits == 8; }

// 8-bit values meet 15 bits, 2-bit values 8. 4-bit values meet 15 where one token of the page may dominate the sum, or the
// small weights beside it would be lost: a page whose largest weight is below this share of the run's weights takes 8.
inline constexpr float kDominantWeight = 1.f / 64.f;

}  // namespace neve::kv
