// For tests: geometries and caches of a few KB.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv/cache_runner.h"
#include "neve/kv_cache.h"

namespace neve::kv {

inline LayerGeometry heads_of(int query_heads, int kv_heads, int key_dim, int value_dim) {
  LayerGeometry g;
  g.query_heads = query_heads;
  g.kv_heads = kv_heads;
  g.key_dim = key_dim;
  g.value_dim = value_dim;
  return g;
}

inline std::vector<LayerGeometry> layers_of(int layers, int query_heads, int kv_heads, int key_dim, int value_dim) {
  return std::vector<LayerGeometry>(static_cast<std::size_t>(layers),
                                    heads_of(query_heads, kv_heads, key_dim, value_dim));
}

inline CacheOptions options_of(const std::string& spec, std::int64_t max_tokens = 4096, std::uint64_t budget = 0,
                               int sequences = 1) {
  CacheOptions options;
  options.spec = *parse_kv_spec(spec);
  options.max_tokens = max_tokens;
  options.budget_bytes = budget;
  options.max_sequences = sequences;
  options.threads = 8;
  return options;
}

inline CacheRunner runner_of(const std::vector<LayerGeometry>& layers, const CacheOptions& options, int slices = 1) {
  return CacheRunner(std::move(KvCache::create(layers, options)).value(), slices);
}

}  // namespace neve::kv
