// One prefill item: a tile of queries of one KV head over all columns. Each page is expanded once per tile to f32 and
// stays in cache while the tile's rows pass over it, with a running maximum per row.
#include <cmath>
#include <limits>
#include <utility>

#include "kv/page_view.h"

namespace neve {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int kTokens = kv::kPageTokens;
constexpr int kBlockRows = 48;  // rows whose scores stay in the first-level cache

// A page as f32.
struct PageTile {
  int tokens = 0;             // that any row sees
  std::int64_t first = 0;     // index of its first token in the sequence
  bool stored_order = false;  // keys stand in stored channel order
  bool rotated = false;       // values are rotated
  std::ptrdiff_t value_stride = 0;
};

// The rows of a tile (token-major, then query head) and where their results grow.
struct TileRows {
  int count = 0, heads = 0;
  std::int64_t first_index = 0;  // of the first token in the sequence
  std::ptrdiff_t key_stride = 0, value_stride = 0;
  float* queries = nullptr;         // [count][key_stride], times the layer's scale
  float* stored_queries = nullptr;  // the same in stored channel order
  float* out = nullptr;             // [count][value_stride]
  float* rotated_out = nullptr;     // [count][value_stride]
  float* top = nullptr;             // [count]
  float* sum = nullptr;             // [count]
  float* scores = nullptr;          // [kBlockRows][128]
  float* keys = nullptr;            // of the page: [key_stride][128]
  float* values = nullptr;          // of the page: [128][value_stride of the page]

  void allocate(std::vector<float>* floats) {
    const auto rows = static_cast<std::size_t>(count);
    const auto key = static_cast<std::size_t>(key_stride), value = static_cast<std::size_t>(value_stride);
    const std::pair<float**, std::size_t> pieces[] = {{&queries, rows * key},
                                                      {&stored_queries, rows * key},
                                                      {&out, rows * value},
                                                      {&rotated_out, rows * value},
                                                      {&top, rows},
                                                      {&sum, rows},
                                                      {&scores, static_cast<std::size_t>(kBlockRows * kTokens)},
                                                      {&keys, key * kTokens},
                                                      {&values, value * kTokens}};
    std::size_t total = 0;
    for (const auto& piece : pieces) total += piece.second;
    if (floats->size() < total) floats->resize(total);
    float* next = floats->data();
    for (const auto& piece : pieces) *piece.first = std::exchange(next, next + piece.second);
    std::fill_n(out, rows * value, 0.f);
    std::fill_n(rotated_out, rows * value, 0.f);
    std::fill_n(top, rows, kNever);
    std::fill_n(sum, rows, 0.f);
  }
};

class TileAttention {
 public:
  TileAttention(const simd::Kernels& kernels, const LayerGeometry& layer, const kv::Sequence& sequence, TileRows rows)
      : kernels_(kernels), layer_(layer), sequence_(sequence), rows_(rows) {}

  void expand_f16_keys(const std::uint16_t* keys, PageTile* page) const {
    kernels_.tile->transpose_f16(keys, page->tokens, layer_.key_dim, rows_.keys, kTokens);
    page->stored_order = false;
  }

  void expand_f16_values(const std::uint16_t* values, PageTile* page) const {
    const auto n = static_cast<std::size_t>(page->tokens) * static_cast<std::size_t>(layer_.value_dim);
    kernels_.coding->f32_from_f16(values, rows_.values, n);
    page->value_stride = layer_.value_dim;
    page->rotated = false;
  }

  void expand_keys(const quant::KeyLayout& layout, const kv::BlockView& block, Shift shift, float clip,
                   PageTile* page) const {
    page->stored_order = true;
    for (const quant::KeyRun& run : layout.runs) {
      const std::ptrdiff_t channel = run.first_quad * 4;
      float* out = rows_.keys + channel * kTokens;
      if (run.bits == 0) {  // the minimum is the mean
        float means[simd::kTileChannels];
        kernels_.coding->f32_from_f16(block.min + channel, means, static_cast<std::size_t>(run.quads) * 4);
        for (int c = 0; c < run.quads * 4; ++c) std::fill_n(out + c * kTokens, kTokens, means[c]);
        continue;
      }
      const quant::Width width = quant::shifted_width(run.bits, shift, clip);
      const std::ptrdiff_t slot = layout.groups > 0 ? static_cast<std::ptrdiff_t>(run.group) * kTokens : channel;
      kernels_.tile->expand_keys({block.codes + run.offset, run.bits, run.quads, 0, block.scale + slot,
                                  block.min + slot, layout.groups > 0 ? 1 : 0, width.multiple, width.center, out,
                                  kTokens});
    }
  }

  void expand_values(const quant::ValueLayout& layout, const kv::BlockView& block, Shift shift, float clip,
                     PageTile* page) const {
    const quant::Width width = quant::shifted_width(layout.bits, shift, clip);
    page->value_stride = rows_.value_stride;
    page->rotated = layout.rotated > 0;
    for (std::size_t g = 0; g < layout.runs.size(); ++g) {
      const quant::ValueRun& run = layout.runs[g];
      kernels_.tile->expand_values({block.codes + run.first_channel * 4, layout.bits, run.channels,
                                    static_cast<std::ptrdiff_t>(layout.row_bytes), block.scale + g * kTokens,
                                    block.min + g * kTokens, 1, width.multiple, width.center,
                                    rows_.values + run.first_channel, rows_.value_stride});
    }
  }

  void attend(const PageTile& page) const {
    for (int block = 0; block < rows_.count; block += kBlockRows) {
      const int rows = std::min(kBlockRows, rows_.count - block);
      // Rows whose token comes before the page see nothing of it.
      if (rows_.first_index + (block + rows - 1) / rows_.heads < page.first) continue;
      const float* q = (page.stored_order ? rows_.stored_queries : rows_.queries) + block * rows_.key_stride;
      kernels_.tile->multiply({q, rows_.key_stride, rows_.keys, kTokens, rows_.scores, kTokens, rows, page.tokens,
                               page.stored_order ? static_cast<int>(rows_.key_stride) : layer_.key_dim, 0});
      for (int r = 0; r < rows; ++r) weigh_row(page, block + r, rows_.scores + r * kTokens);
      float* out = (page.rotated ? rows_.rotated_out : rows_.out) + block * rows_.value_stride;
      kernels_.tile->multiply({rows_.scores, kTokens, rows_.values, page.value_stride, out, rows_.value_stride, rows,
                               static_cast<int>(page.value_stride), page.tokens, 1});
    }
  }

 private:
  // Scores of one row become weights relative to its running maximum; what the row holds so far is rescaled.
  void weigh_row(const PageTile& page, int row, float* scores) const {
    const std::int64_t index = rows_.first_index + row / rows_.heads;
    const int seen = static_cast<int>(std::clamp<std::int64_t>(index + 1 - page.first, 0, page.tokens));
    const std::int32_t position = sequence_.positions[static_cast<std::size_t>(index)];
    const int from = kv::first_visible(sequence_, page.first, seen, position, layer_.sliding_window);
    const float cap = layer_.logit_softcap;
    for (int t = from; cap > 0.f && t < seen; ++t) scores[t] = cap * std::tanh(scores[t] / cap);
    std::fill(scores, scores + from, kNever);
    std::fill(scores + seen, scores + page.tokens, kNever);
    const auto n = static_cast<std::size_t>(page.tokens);
    const float top = std::max(rows_.top[row], kernels_.attend->max(scores, n));
    if (top == kNever) {
      std::fill_n(scores, n, 0.f);
      return;
    }
    if (top > rows_.top[row] && rows_.sum[row] > 0.f) {
      const float factor = std::exp(rows_.top[row] - top);
      rows_.sum[row] *= factor;
      float* out = rows_.out + row * rows_.value_stride;
      float* rotated_out = rows_.rotated_out + row * rows_.value_stride;
      for (std::ptrdiff_t c = 0; c < rows_.value_stride; ++c) out[c] *= factor;
      for (std::ptrdiff_t c = 0; c < rows_.value_stride; ++c) rotated_out[c] *= factor;
    }
    rows_.top[row] = top;
    rows_.sum[row] += kernels_.attend->exp_sum(scores, n, top);
  }

  const simd::Kernels& kernels_;
  const LayerGeometry& layer_;
  const kv::Sequence& sequence_;
  TileRows rows_;
};

}  // namespace

void KvCache::Impl::attend_tile(int layer_index, const kv::ActivePart& part, int head, int first_token, int tokens,
                                HeadRows queries, std::vector<float>* floats) {
  const LayerGeometry& layer = shape.layers[static_cast<std::size_t>(layer_index)];
  const int stored = shape.stored_of[static_cast<std::size_t>(layer_index)];
  const kv::StoredLayer& store = shape.stored[static_cast<std::size_t>(stored)];
  const kv::Sequence& s = *part.sequence;
  const std::vector<quant::KeyLayout>& keys = kv::key_layouts(shape, s.known_maps(), stored, head);
  const std::vector<std::uint16_t>& order = keys[0].order;
  const auto clip = static_cast<float>(options.spec.clip);

  TileRows rows;
  rows.heads = layer.query_heads / layer.kv_heads;
  rows.count = tokens * rows.heads;
  rows.first_index = s.committed + first_token;
  rows.key_stride = quant::padded_channels(layer.key_dim);
  rows.value_stride = quant::padded_channels(layer.value_dim);
  rows.allocate(floats);
  if (order.empty()) rows.stored_queries = rows.queries;
  for (int r = 0; r < rows.count; ++r) {
    const std::int64_t row = part.first_row + first_token + r / rows.heads;
    const std::int64_t query_head = head * rows.heads + r % rows.heads;
    const float* q = queries.data + row * queries.token_stride + query_head * queries.head_stride;
    float* to = rows.queries + r * rows.key_stride;
    for (int c = 0; c < layer.key_dim; ++c) to[c] = q[c] * layer.scale;
    std::fill(to + layer.key_dim, to + rows.key_stride, 0.f);
    if (order.empty()) continue;
    float* sorted = rows.stored_queries + r * rows.key_stride;
    for (std::size_t c = 0; c < order.size(); ++c) sorted[c] = to[order[c]];
    std::fill(sorted + order.size(), sorted + rows.key_stride, 0.f);
  }

  const TileAttention attention(kernels, layer, s, rows);
  const std::int64_t last_index = rows.first_index + tokens - 1;
  PageTile page;
  const kv::SinkView sinks_seen = kv::view_sinks(s, shape, stored, head, sinks(), last_index + 1);
  if (sinks_seen.tokens > 0) {
    page.tokens = sinks_seen.tokens;
    attention.expand_f16_keys(sinks_seen.keys, &page);
    attention.expand_f16_values(sinks_seen.values, &page);
    attention.attend(page);
  }
  // The first row sees furthest back: what it does not see, no row sees.
  const std::int32_t oldest = s.positions[static_cast<std::size_t>(rows.first_index)];
  for (const kv::Column& column : s.columns) {
    page.tokens = kv::visible_tokens(column, last_index);
    page.first = column.first;
    if (page.tokens == 0) break;
    const kv::PageId id = column.pages[static_cast<std::size_t>(store.first_head + head)];
    if (id == kv::kNoPage) continue;
    if (kv::first_visible(s, column.first, page.tokens, oldest, layer.sliding_window) == page.tokens) continue;
    const kv::BlockView key_block = kv::view_block(storage, shape, storage.page(id), kv::kKey);
    const kv::BlockView value_block = kv::view_block(storage, shape, storage.page(id), kv::kValue);
    if (key_block.level == 0) {
      attention.expand_f16_keys(key_block.numbers(), &page);
    } else {
      attention.expand_keys(keys[static_cast<std::size_t>(key_block.level)], key_block, options.spec.shift, clip,
                            &page);
    }
    if (value_block.level == 0) {
      attention.expand_f16_values(value_block.numbers(), &page);
    } else {
      const quant::ValueLayout& layout = store.value_layouts[static_cast<std::size_t>(value_block.level)];
      attention.expand_values(layout, value_block, options.spec.shift, clip, &page);
    }
    attention.attend(page);
  }

  const int rotated = store.value_layouts[0].rotated;
  for (int channel = 0; rotated > 0 && channel < layer.value_dim; channel += rotated) {
    kernels.coding->rotate_rows(rows.rotated_out + channel, rows.count, rows.value_stride, rotated);
  }
  for (int r = 0; r < rows.count; ++r) {
    float* result = partial(part, layer, first_token + r / rows.heads, head * rows.heads + r % rows.heads, 0);
    const float* out = rows.out + r * rows.value_stride;
    const float* rotated_out = rows.rotated_out + r * rows.value_stride;
    for (int c = 0; c < layer.value_dim; ++c) result[c] = out[c] + rotated_out[c];
    result[layer.value_dim] = rows.top[r];
    result[layer.value_dim + 1] = rows.sum[r];
  }
}

}  // namespace neve
