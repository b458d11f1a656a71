#include "model/attention_op.h"

namespace neve::model {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// tensor: [channels, heads, tokens] f32
HeadRows rows_of(const ggml_tensor* tensor, std::int64_t first) {
  const std::int64_t token_stride = static_cast<std::int64_t>(tensor->nb[2]) / kFloat;
  const std::int64_t head_stride = static_cast<std::int64_t>(tensor->nb[1]) / kFloat;
  return {static_cast<const float*>(tensor->data) + first * token_stride, token_stride, head_stride};
}

void run_append(ggml_tensor* node, int slice, int slices, void* data) {
  const auto* const layer = static_cast<const AttentionLayer*>(data);
  for (const CacheRows& rows : layer->step->caches) {
    rows.cache->append(layer->layer, slice, slices, rows_of(node->src[0], rows.first),
                       rows_of(node->src[1], rows.first), rows_of(node->src[2], rows.first));
  }
}

void run_attend(ggml_tensor* node, int slice, int slices, void* data) {
  const auto* const layer = static_cast<const AttentionLayer*>(data);
  for (const CacheRows& rows : layer->step->caches) {
    rows.cache->attend(layer->layer, slice, slices, rows_of(node->src[0], rows.first));
  }
}

// node: [value_dim * query_heads, tokens]
void run_merge(ggml_tensor* node, int slice, int slices, void* data) {
  const auto* const layer = static_cast<const AttentionLayer*>(data);
  const std::int64_t token_stride = static_cast<std::int64_t>(node->nb[1]) / kFloat;
  for (const CacheRows& rows : layer->step->caches) {
    const LayerGeometry& geometry = rows.cache->layers()[static_cast<std::size_t>(layer->layer)];
    float* const out = static_cast<float*>(node->data) + rows.first * token_stride;
    rows.cache->merge(layer->layer, slice, slices, {out, token_stride, geometry.value_dim});
  }
}

// A node without a result still needs one element, for later nodes to depend on.
ggml_tensor* phase(ggml_context* context, AttentionLayer* layer, ggml_custom_op_t run, ggml_tensor** sources,
                   int count) {
  return ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, sources, count, run, GGML_N_TASKS_MAX, layer);
}

}  // namespace

ggml_tensor* build_append(ggml_context* context, AttentionLayer* layer, ggml_tensor* query, ggml_tensor* key,
                          ggml_tensor* value) {
  ggml_tensor* sources[] = {query, key, value};
  return phase(context, layer, run_append, sources, 3);
}

ggml_tensor* build_attend(ggml_context* context, AttentionLayer* layer, const LayerGeometry& geometry,
                          ggml_tensor* append, ggml_tensor* query) {
  ggml_tensor* attend_sources[] = {query, append};
  ggml_tensor* merge_sources[] = {phase(context, layer, run_attend, attend_sources, 2)};
  return ggml_custom_4d(context, GGML_TYPE_F32, std::int64_t{geometry.value_dim} * geometry.query_heads, query->ne[2],
                        1, 1, merge_sources, 1, run_merge, GGML_N_TASKS_MAX, layer);
}

}  // namespace neve::model
