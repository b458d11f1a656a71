// plan_cache: the cache itself, run without memory.
#include <algorithm>

#include "kv/cache_impl.h"

namespace neve {

Result<CachePlan> KvCache::Impl::plan(const std::vector<LayerGeometry>& layers, const CacheOptions& options,
                                      std::int64_t tokens, int sequences) {
  CacheOptions planned = options;
  planned.max_tokens = std::max(options.max_tokens, tokens);
  planned.max_sequences = std::max(options.max_sequences, sequences);
  Result<std::unique_ptr<KvCache>> made = make(layers, planned, kv::Backing::kNone);
  if (!made.ok()) return made.status();
  KvCache& cache = **made;
  const Impl& impl = *cache.impl_;
  CachePlan plan;
  for (int i = 0; i < sequences; ++i) {
    Result<int> id = cache.add_sequence();
    if (!id.ok()) return id.status();
  }
  while (plan.capacity_tokens < tokens) {
    // Up to the next change of state; what lies between does not depend on how it is cut.
    const std::int64_t stop = std::min({tokens, cache.next_boundary(0), plan.capacity_tokens + kv::kPageTokens});
    std::vector<StepPart> step;
    for (int i = 0; i < sequences; ++i) step.push_back({i, static_cast<int>(stop - plan.capacity_tokens), nullptr});
    const Status begun = cache.begin_step(step);
    if (begun.code() == Code::kBudget) break;
    NEVE_RETURN_IF_ERROR(begun);
    NEVE_RETURN_IF_ERROR(cache.commit_step());
    plan.capacity_tokens = stop;
  }
  plan.bytes = cache.memory().bytes;
  plan.peak_bytes = cache.memory().peak_bytes;
  plan.budget_bytes = impl.options.budget_bytes;
  plan.least_bytes = kv::least_bytes(impl.shape, impl.options, tokens, sequences);
  plan.f16_bytes = kv::f16_bytes(impl.shape, impl.options, tokens, sequences);
  plan.layers = impl.layer_plans();
  return plan;
}

std::vector<CachePlan::Layer> KvCache::Impl::layer_plans() const {
  std::vector<CachePlan::Layer> stored(shape.stored.size());
  std::vector<double> pages(shape.stored.size(), 0.0);
  for (std::size_t id = 0; id < storage.page_limit(); ++id) {
    const kv::Page& page = storage.page(static_cast<kv::PageId>(id));
    if (page.owners == 0) continue;
    pages[page.stored] += 1.0;
    stored[page.stored].key_bits += shape.levels[page.now[kv::kKey].level].bits[kv::kKey];
    stored[page.stored].value_bits += shape.levels[page.now[kv::kValue].level].bits[kv::kValue];
  }
  std::vector<CachePlan::Layer> layers(shape.layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto at = static_cast<std::size_t>(shape.stored_of[i]);
    layers[i] = stored[at];
    if (pages[at] > 0.0) {
      layers[i].key_bits /= pages[at];
      layers[i].value_bits /= pages[at];
    }
    if (shape.layers[i].shares_layer < 0) layers[i].bytes = storage.layer_bytes(static_cast<int>(at));
  }
  return layers;
}

Result<CachePlan> plan_cache(const std::vector<LayerGeometry>& layers, const CacheOptions& options, std::int64_t tokens,
                             int sequences) {
  return KvCache::Impl::plan(layers, options, tokens, sequences);
}

}  // namespace neve
