// One decode item: the query heads of one KV head at one token, over a run of columns. First all scores, then one
// softmax over them, then all values.
#include <cmath>
#include <limits>

#include "kv/decode_page.h"

namespace neve {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kTokens = kv::kPageTokens;

// A page of the item, and which of its tokens the query sees: [from, seen).
struct VisiblePage {
  const kv::Page* page = nullptr;  // null: nothing of it is seen
  int from = 0, seen = 0;
};

void scale_queries(const kv::DecodeQuery& query, const float* rows, std::int64_t row_stride, int channels, float scale,
                   const std::vector<std::uint16_t>& order) {
  for (int h = 0; h < query.heads; ++h) {
    float* to = query.queries + h * query.query_stride;
    for (int c = 0; c < channels; ++c) to[c] = rows[h * row_stride + c] * scale;
    std::fill(to + channels, to + query.query_stride, 0.f);
    if (order.empty()) continue;
    float* sorted = query.stored_queries + h * query.query_stride;
    for (std::size_t c = 0; c < order.size(); ++c) sorted[c] = to[order[c]];
    std::fill(sorted + order.size(), sorted + query.query_stride, 0.f);
  }
}

// Weights of one head from its scores; returns their sum. All weights are 0 where nothing is seen.
float soft_max(const simd::AttendKernels& kernels, float* scores, std::size_t n, float cap, float* top) {
  if (cap > 0.f) {
    for (std::size_t i = 0; i < n; ++i)
      scores[i] = std::isinf(scores[i]) ? scores[i] : cap * std::tanh(scores[i] / cap);
  }
  *top = kernels.max(scores, n);
  if (*top != kNever) return kernels.exp_sum(scores, n, *top);
  std::fill_n(scores, n, 0.f);
  return 0.f;
}

}  // namespace

void KvCache::Impl::attend_decode(int layer_index, const kv::ActivePart& part, int token, int head, std::int64_t run,
                                  HeadRows queries, std::vector<float>* floats) {
  const LayerGeometry& layer = shape.layers[static_cast<std::size_t>(layer_index)];
  const int stored = shape.stored_of[static_cast<std::size_t>(layer_index)];
  const kv::StoredLayer& store = shape.stored[static_cast<std::size_t>(stored)];
  const kv::Sequence& s = *part.sequence;
  const std::int64_t index = s.committed + token;
  const std::int32_t position = s.positions[static_cast<std::size_t>(index)];
  const std::vector<quant::KeyLayout>& keys = kv::key_layouts(shape, s.known_maps(), stored, head);
  const std::vector<quant::ValueLayout>& values = store.value_layouts;

  VisiblePage pages[kv::kRunColumns];
  const auto first = static_cast<std::size_t>(run) * kv::kRunColumns;
  std::size_t columns = 0;
  for (; columns < kv::kRunColumns && first + columns < s.columns.size(); ++columns) {
    const kv::Column& column = s.columns[first + columns];
    VisiblePage& visible = pages[columns];
    visible.seen = kv::visible_tokens(column, index);
    if (visible.seen == 0) break;
    visible.from = kv::first_visible(s, column.first, visible.seen, position, layer.sliding_window);
    const kv::PageId id = column.pages[static_cast<std::size_t>(store.first_head + head)];
    if (id != kv::kNoPage && visible.from < visible.seen) visible.page = &storage.page(id);
  }
  const kv::SinkView sinks_seen = kv::view_sinks(s, shape, stored, head, sinks(), run == 0 ? index + 1 : 0);
  const std::size_t scores_n = columns * kTokens + static_cast<std::size_t>(sinks_seen.tokens);

  kv::DecodeQuery query;
  query.attend = kernels.attend;
  query.coding = kernels.coding;
  query.shift = options.spec.shift;
  query.clip = static_cast<float>(options.spec.clip);
  query.heads = layer.query_heads / layer.kv_heads;
  query.allocate(keys[0], values[0], scores_n, floats);
  if (keys[0].order.empty()) query.stored_queries = query.queries;
  const std::int64_t row = part.first_row + token;
  scale_queries(query, queries.data + row * queries.token_stride + head * query.heads * queries.head_stride,
                queries.head_stride, layer.key_dim, layer.scale, keys[0].order);

  const auto hide = [&](float* scores, int from, int seen, std::size_t held) {
    for (int h = 0; h < query.heads; ++h) {
      float* of_head = scores + h * query.score_stride;
      std::fill_n(of_head, from, kNever);
      std::fill(of_head + seen, of_head + held, kNever);
    }
  };
  // The kernels prefetch the next page's codes while they read this one's; its scales are fetched here.
  const auto codes_after = [&](std::size_t i, kv::Kind kind) -> const std::uint8_t* {
    const kv::Page* next = i + 1 < columns ? pages[i + 1].page : nullptr;
    if (next == nullptr) return nullptr;
    const kv::BlockView block = kv::view_block(storage, shape, *next, kind);
    if (block.level > 0) kv::prefetch(block.scale, kv::scale_bytes(shape, store, kind));
    return block.codes;
  };
  if (columns > 0 && pages[0].page != nullptr) {
    for (const kv::Kind kind : kv::kKinds) {
      const kv::BlockView block = kv::view_block(storage, shape, *pages[0].page, kind);
      if (block.level > 0) kv::prefetch(block.scale, kv::scale_bytes(shape, store, kind));
      kv::prefetch(block.codes, kv::kFirstBytes);
    }
  }
  for (std::size_t i = 0; i < columns; ++i) {
    float* scores = query.scores + i * kTokens;
    const VisiblePage& visible = pages[i];
    if (visible.page == nullptr) {
      hide(scores, 0, 0, kTokens);
      continue;
    }
    const kv::BlockView block = kv::view_block(storage, shape, *visible.page, kv::kKey);
    if (block.level == 0) {
      kernels.attend->score_f16({block.numbers(), visible.seen, layer.key_dim, query.queries, query.query_stride,
                                 query.heads, scores, query.score_stride});
    } else {
      kv::score_coded_keys(query, keys[static_cast<std::size_t>(block.level)], block, scores, codes_after(i, kv::kKey));
    }
    hide(scores, visible.from, visible.seen, kTokens);
  }
  float* sink_scores = query.scores + columns * kTokens;
  if (sinks_seen.tokens > 0) {
    kernels.attend->score_f16({sinks_seen.keys, sinks_seen.tokens, layer.key_dim, query.queries, query.query_stride,
                               query.heads, sink_scores, query.score_stride});
    const int from = kv::first_visible(s, 0, sinks_seen.tokens, position, layer.sliding_window);
    hide(sink_scores, from, sinks_seen.tokens, static_cast<std::size_t>(sinks_seen.tokens));
  }

  for (int h = 0; h < query.heads; ++h) {
    float* result = partial(part, layer, token, head * query.heads + h, run) + layer.value_dim;
    query.weight_sum[h] =
        soft_max(*kernels.attend, query.scores + h * query.score_stride, scores_n, layer.logit_softcap, result);
    result[1] = query.weight_sum[h];
  }

  for (std::size_t i = 0; i < columns; ++i) {
    const VisiblePage& visible = pages[i];
    if (visible.page == nullptr) continue;
    const kv::BlockView block = kv::view_block(storage, shape, *visible.page, kv::kValue);
    const float* weights = query.scores + i * kTokens;
    if (block.level == 0) {
      kernels.attend->weigh_f16({block.numbers(), visible.seen, layer.value_dim, weights, query.score_stride,
                                 query.heads, query.out, query.value_stride});
    } else {
      kv::weigh_coded_values(query, values[static_cast<std::size_t>(block.level)], block, weights,
                             codes_after(i, kv::kValue));
    }
  }
  if (sinks_seen.tokens > 0) {
    kernels.attend->weigh_f16({sinks_seen.values, sinks_seen.tokens, layer.value_dim, sink_scores, query.score_stride,
                               query.heads, query.out, query.value_stride});
  }

  for (std::size_t g = 0; g < values[0].runs.size(); ++g) {
    const quant::ValueRun& group = values[0].runs[g];
    for (int h = 0; h < query.heads; ++h) {
      float* out = query.coded_out + h * query.value_stride + group.first_channel;
      const float offset = query.value_offset[g * static_cast<std::size_t>(query.heads) + static_cast<std::size_t>(h)];
      for (int c = 0; c < group.channels; ++c) out[c] += offset;
    }
  }
  const int rotated = values[0].rotated;
  for (int channel = 0; rotated > 0 && channel < layer.value_dim; channel += rotated) {
    kernels.coding->rotate_rows(query.coded_out + channel, query.heads, query.value_stride, rotated);
  }
  for (int h = 0; h < query.heads; ++h) {
    float* result = partial(part, layer, token, head * query.heads + h, run);
    for (int c = 0; c < layer.value_dim; ++c) {
      result[c] = query.out[h * query.value_stride + c] + query.coded_out[h * query.value_stride + c];
    }
  }
}

}  // namespace neve
