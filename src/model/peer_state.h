// A sequence state as llama_state_seq_set_data reads it, made up: what a llama.cpp cache would hold after so many
// tokens, with random keys and values. Benchmarks fill a cache this way in seconds instead of running a prompt.
//
//   u32 magic, i32 sequence; u32 streams; per stream: u32 cells; of the one that is not empty:
//   cells x { i32 position, u32 1, i32 sequence }; u32 v_transposed; u32 layers;
//   layers x { i32 type, u64 row bytes, cells x row } keys; then values, likewise, or transposed:
//   layers x { i32 type, u32 element bytes, u32 channels, channels x cells x element }
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"
#include "neve/kv_cache.h"

namespace neve::model {

enum class ValueLayout { kRows, kTransposed };  // transposed: without flash attention

struct PeerStateShape {
  std::span<const LayerGeometry> layers;
  ggml_type type = GGML_TYPE_F16;  // of keys and values; transposed values cannot be quantised
  ValueLayout values = ValueLayout::kRows;
  int streams = 1;
  int sequence = 0;
  std::int64_t tokens = 0;
};

std::vector<std::uint8_t> synthetic_peer_state(const PeerStateShape& shape, std::uint64_t seed);

// `rows` rows of `columns` normally distributed numbers as `type`. Requires: the type is f32, f16 or quantised, and its
// blocks divide a row.
std::vector<std::uint8_t> random_rows(ggml_type type, std::int64_t rows, std::int64_t columns, std::uint64_t seed);

}  // namespace neve::model
