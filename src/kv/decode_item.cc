#include "kv/decode_item.h"

#include <cmath>
#include <limits>

namespace neve::kv {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kTokens = kPageTokens;

void scale_queries(const DecodeQuery& query, const float* rows, std::int64_t row_stride, int channels, float scale,
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

DecodeItem::DecodeItem(KvCache::Impl& impl, int layer, const ActivePart& part, int token, int head, std::int64_t run)
    : impl_(impl),
      layer_(impl.shape.layers[static_cast<std::size_t>(layer)]),
      part_(part),
      stored_(impl.shape.stored_of[static_cast<std::size_t>(layer)]),
      store_(impl.shape.stored[static_cast<std::size_t>(stored_)]),
      sequence_(*part.sequence),
      keys_(key_layouts(impl.shape, sequence_.known_maps(), stored_, head)),
      values_(store_.value_layouts),
      token_(token),
      head_(head),
      run_(run),
      index_(sequence_.committed + token),
      position_(sequence_.positions[static_cast<std::size_t>(index_)]) {
  find_pages();
  sinks_ = view_sinks(sequence_, impl.shape, stored_, head, impl.sinks(), run == 0 ? index_ + 1 : 0);
  scores_n_ = columns_ * kTokens + static_cast<std::size_t>(sinks_.tokens);
}

void DecodeItem::find_pages() {
  const std::size_t first = static_cast<std::size_t>(run_) * kRunColumns;
  for (; columns_ < kRunColumns && first + columns_ < sequence_.columns.size(); ++columns_) {
    const Column& column = sequence_.columns[first + columns_];
    VisiblePage& visible = pages_[columns_];
    visible.seen = visible_tokens(column, index_);
    if (visible.seen == 0) break;
    visible.from = first_visible(sequence_, column.first, visible.seen, position_, layer_.sliding_window);
    const PageId id = column.pages[static_cast<std::size_t>(store_.first_head + head_)];
    if (id == kNoPage) visible.from = visible.seen;
    if (visible.from == visible.seen) continue;
    const Page& page = impl_.storage.page(id);
    for (const Kind kind : kKinds) visible.block[kind] = view_block(impl_.storage, impl_.shape, page, kind);
  }
}

const std::uint8_t* DecodeItem::codes_ahead(std::size_t i, Kind kind) const {
  if (i >= columns_ || pages_[i].from == pages_[i].seen) return nullptr;
  const BlockView& ahead = pages_[i].block[kind];
  if (ahead.level > 0) prefetch(ahead.scale, scale_bytes(impl_.shape, store_, kind));
  return ahead.codes;
}

void DecodeItem::compute(HeadRows queries, std::vector<float>* floats) {
  load_queries(queries, floats);
  score_keys();
  make_weights();
  weigh_values();
  write();
}

float* DecodeItem::result(int query_head) const {
  return impl_.partial(part_, layer_, token_, head_ * query_.heads + query_head, run_);
}

void DecodeItem::load_queries(HeadRows queries, std::vector<float>* floats) {
  query_.attend = impl_.kernels.attend;
  query_.coding = impl_.kernels.coding;
  query_.shift = impl_.options.spec.shift;
  query_.clip = static_cast<float>(impl_.options.spec.clip);
  query_.heads = layer_.query_heads / layer_.kv_heads;
  query_.allocate(keys_[0], values_[0], scores_n_, floats);
  if (keys_[0].order.empty()) query_.stored_queries = query_.queries;
  const float* rows =
      queries.data + (part_.first_row + token_) * queries.token_stride + head_ * query_.heads * queries.head_stride;
  scale_queries(query_, rows, queries.head_stride, layer_.key_dim, layer_.scale, keys_[0].order);
}

void DecodeItem::hide(float* scores, int from, int seen, std::size_t held) const {
  for (int h = 0; h < query_.heads; ++h) {
    float* of_head = scores + h * query_.score_stride;
    std::fill_n(of_head, from, kNever);
    std::fill(of_head + seen, of_head + held, kNever);
  }
}

void DecodeItem::score_keys() {
  for (const Kind kind : kKinds) {
    const std::uint8_t* codes = codes_ahead(0, kind);
    if (codes != nullptr) prefetch(codes, kFirstBytes);
  }
  for (std::size_t i = 0; i < columns_; ++i) {
    float* scores = query_.scores + i * kTokens;
    const VisiblePage& visible = pages_[i];
    const BlockView& keys = visible.block[kKey];
    if (visible.from < visible.seen && keys.level == 0) {
      query_.attend->score_f16({keys.numbers(), visible.seen, layer_.key_dim, query_.queries, query_.query_stride,
                                query_.heads, scores, query_.score_stride});
    } else if (visible.from < visible.seen) {
      score_coded_keys(query_, keys_[static_cast<std::size_t>(keys.level)], keys, scores, codes_ahead(i + 1, kKey));
    }
    hide(scores, visible.from, visible.seen, kTokens);
  }
  if (sinks_.tokens == 0) return;
  float* scores = query_.scores + columns_ * kTokens;
  query_.attend->score_f16({sinks_.keys, sinks_.tokens, layer_.key_dim, query_.queries, query_.query_stride,
                            query_.heads, scores, query_.score_stride});
  const int from = first_visible(sequence_, 0, sinks_.tokens, position_, layer_.sliding_window);
  hide(scores, from, sinks_.tokens, static_cast<std::size_t>(sinks_.tokens));
}

void DecodeItem::make_weights() {
  for (int h = 0; h < query_.heads; ++h) {
    float* top_and_sum = result(h) + layer_.value_dim;
    query_.weight_sum[h] =
        soft_max(*query_.attend, query_.scores + h * query_.score_stride, scores_n_, layer_.logit_softcap, top_and_sum);
    top_and_sum[1] = query_.weight_sum[h];
  }
}

void DecodeItem::weigh_values() {
  for (std::size_t i = 0; i < columns_; ++i) {
    const VisiblePage& visible = pages_[i];
    if (visible.from == visible.seen) continue;
    const BlockView& values = visible.block[kValue];
    const float* weights = query_.scores + i * kTokens;
    if (values.level == 0) {
      query_.attend->weigh_f16({values.numbers(), visible.seen, layer_.value_dim, weights, query_.score_stride,
                                query_.heads, query_.out, query_.value_stride});
    } else {
      weigh_coded_values(query_, values_[static_cast<std::size_t>(values.level)], values, weights,
                         codes_ahead(i + 1, kValue));
    }
  }
  if (sinks_.tokens == 0) return;
  query_.attend->weigh_f16({sinks_.values, sinks_.tokens, layer_.value_dim, query_.scores + columns_ * kTokens,
                            query_.score_stride, query_.heads, query_.out, query_.value_stride});
}

void DecodeItem::write() {
  const auto heads = static_cast<std::size_t>(query_.heads);
  for (std::size_t g = 0; g < values_[0].runs.size(); ++g) {
    const quant::ValueRun& group = values_[0].runs[g];
    for (std::size_t h = 0; h < heads; ++h) {
      float* out = query_.coded_out + static_cast<std::ptrdiff_t>(h) * query_.value_stride + group.first_channel;
      for (int c = 0; c < group.channels; ++c) out[c] += query_.value_offset[g * heads + h];
    }
  }
  const int rotated = values_[0].rotated;
  for (int channel = 0; rotated > 0 && channel < layer_.value_dim; channel += rotated) {
    query_.coding->rotate_rows(query_.coded_out + channel, query_.heads, query_.value_stride, rotated);
  }
  for (int h = 0; h < query_.heads; ++h) {
    float* to = result(h);
    const std::ptrdiff_t at = h * query_.value_stride;
    for (int c = 0; c < layer_.value_dim; ++c) to[c] = query_.out[at + c] + query_.coded_out[at + c];
  }
}

}  // namespace neve::kv
