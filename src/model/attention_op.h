// The attention of one layer as three nodes of a ggml graph: append -> attend -> merge. Each runs on all threads of
// the graph; ggml's barrier between nodes is the one that KvCache asks for between its three phases.
//
// The nodes name no cache: they read a StepCaches that the runner fills before each step, so a graph is built once for
// a shape and run for any caches.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml.h"
#include "neve/kv_cache.h"

namespace neve::model {

// Rows of the step that belong to one cache.
struct CacheRows {
  KvCache* cache = nullptr;
  std::int64_t first = 0;  // row of the step
};
struct StepCaches {
  std::vector<CacheRows> caches;
};

// What the three nodes of a layer know. Owned by the graph; must outlive it.
struct AttentionLayer {
  const StepCaches* step = nullptr;
  int layer = 0;
};

// query [key_dim, query_heads, tokens], key [key_dim, kv_heads, tokens], value [value_dim, kv_heads, tokens]: f32,
// channels contiguous. The node that stores keys and values; has no result of its own.
ggml_tensor* build_append(ggml_context* context, AttentionLayer* layer, ggml_tensor* query, ggml_tensor* key,
                          ggml_tensor* value);
// Returns: [value_dim * query_heads, tokens] f32, the attention of `query` over all that the caches hold.
ggml_tensor* build_attend(ggml_context* context, AttentionLayer* layer, const LayerGeometry& geometry,
                          ggml_tensor* append, ggml_tensor* query);

}  // namespace neve::model
