// One prefill item: a tile of queries of one KV head over all columns. Each page is expanded once per tile to f32 and
// stays in cache while the tile's rows pass over it, with a running maximum per row.
#include <cmath>
#include <cstring>
#include <limits>

#include "kv/page_view.h"

namespace neve {

using kv::BlockView;
using kv::Column;
using kv::Sequence;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int kTokens = kv::kPageTokens;
constexpr int kBlockRows = 48;  // rows whose scores stay in the first-level cache

// A page as f32: keys [channels][128], values [tokens][value_stride].
struct Tile {
  const float* keys = nullptr;
  const float* values = nullptr;
  std::ptrdiff_t value_stride = 0;
  int tokens = 0;              // of the page that any row sees
  std::int64_t first = 0;      // index of its first token in the sequence
  bool keys_in_order = false;  // keys stand in stored channel order
  bool values_rotated = false;
};

// Rows of a tile and where their results grow.
struct Rows {
  int count;  // tokens * heads
  int heads;
  std::ptrdiff_t key_stride, value_stride;
  float* queries;         // [count][key_stride]
  float* stored_queries;  // the same in stored channel order
  float* out;             // [count][value_stride]
  float* rotated_out;     // [count][value_stride]
  float* top;             // [count]
  float* sum;             // [count]
  float* scores;          // [kBlockRows][128]
};

void scale_row(float* x, int n, float factor) {
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

void KvCache::Impl::attend_tile(int layer_index, const kv::ActivePart& part, int head, int first_token, int tokens,
                                HeadRows queries, std::vector<float>* floats) {
  const LayerGeometry& layer = shape.layers[static_cast<std::size_t>(layer_index)];
  const int stored = shape.stored_of[static_cast<std::size_t>(layer_index)];
  const kv::StoredLayer& store = shape.stored[static_cast<std::size_t>(stored)];
  const Sequence& s = *part.sequence;
  const int heads = layer.query_heads / layer.kv_heads;
  const int key_channels = quant::padded_channels(layer.key_dim);
  const int value_channels = quant::padded_channels(layer.value_dim);
  const std::int64_t first_index = s.committed + first_token;
  const std::int64_t last_index = first_index + tokens - 1;
  const kv::MapSlot* maps = s.maps.get();
  const std::vector<quant::KeyLayout>& key_layouts =
      kv::key_layouts(shape, maps != nullptr && maps->known ? &maps->maps : nullptr, stored, head);
  const std::vector<std::uint16_t>& order = key_layouts[0].order;
  const float clip = static_cast<float>(options.spec.clip);

  Rows rows = {};
  rows.count = tokens * heads;
  rows.heads = heads;
  rows.key_stride = key_channels;
  rows.value_stride = value_channels;
  const auto count = static_cast<std::size_t>(rows.count);
  const auto keys_n = static_cast<std::size_t>(key_channels), values_n = static_cast<std::size_t>(value_channels);
  const std::size_t sizes[] = {count * keys_n,
                               count * keys_n,
                               count * values_n,
                               count * values_n,
                               count,
                               count,
                               static_cast<std::size_t>(kBlockRows * kTokens),
                               keys_n * kTokens,
                               values_n * kTokens};
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  if (floats->size() < total) floats->resize(total);
  float* next = floats->data();
  float* pieces[std::size(sizes)];
  for (std::size_t i = 0; i < std::size(sizes); ++i) pieces[i] = std::exchange(next, next + sizes[i]);
  rows.queries = pieces[0];
  rows.stored_queries = order.empty() ? pieces[0] : pieces[1];
  rows.out = pieces[2];
  rows.rotated_out = pieces[3];
  rows.top = pieces[4];
  rows.sum = pieces[5];
  rows.scores = pieces[6];
  float* key_tile = pieces[7];
  float* value_tile = pieces[8];
  std::memset(rows.out, 0, count * values_n * sizeof(float));
  std::memset(rows.rotated_out, 0, count * values_n * sizeof(float));
  std::fill_n(rows.top, count, kNever);
  std::fill_n(rows.sum, count, 0.f);
  for (int r = 0; r < rows.count; ++r) {
    const std::int64_t row = part.first_row + first_token + r / heads;
    const float* q = queries.data + row * queries.token_stride + (head * heads + r % heads) * queries.head_stride;
    float* to = rows.queries + r * rows.key_stride;
    for (int c = 0; c < layer.key_dim; ++c) to[c] = q[c] * layer.scale;
    std::fill(to + layer.key_dim, to + key_channels, 0.f);
    if (order.empty()) continue;
    float* sorted = rows.stored_queries + r * rows.key_stride;
    for (std::size_t c = 0; c < keys_n; ++c) sorted[c] = c < order.size() ? to[order[c]] : 0.f;
  }

  const simd::TileKernels& tiles = *kernels.tile;
  const auto attend_page = [&](const Tile& tile) {
    for (int block = 0; block < rows.count; block += kBlockRows) {
      const int block_rows = std::min(kBlockRows, rows.count - block);
      // Rows whose token comes before the page see nothing of it.
      if (first_index + (block + block_rows - 1) / heads < tile.first) continue;
      const float* q = (tile.keys_in_order ? rows.stored_queries : rows.queries) + block * rows.key_stride;
      tiles.multiply({q, rows.key_stride, tile.keys, kTokens, rows.scores, kTokens, block_rows, tile.tokens,
                      tile.keys_in_order ? key_channels : layer.key_dim, 0});
      for (int r = 0; r < block_rows; ++r) {
        const int row = block + r;
        const std::int64_t index = first_index + row / heads;
        float* scores = rows.scores + r * kTokens;
        const int seen = static_cast<int>(std::clamp<std::int64_t>(index + 1 - tile.first, 0, tile.tokens));
        const int from =
            kv::first_visible(s, tile.first, seen, s.positions[static_cast<std::size_t>(index)], layer.sliding_window);
        if (layer.logit_softcap > 0.f) {
          for (int t = from; t < seen; ++t)
            scores[t] = layer.logit_softcap * std::tanh(scores[t] / layer.logit_softcap);
        }
        std::fill(scores, scores + from, kNever);
        std::fill(scores + seen, scores + tile.tokens, kNever);
        const auto n = static_cast<std::size_t>(tile.tokens);
        const float top = std::max(rows.top[row], kernels.attend->max(scores, n));
        if (top == kNever) {
          std::fill_n(scores, n, 0.f);
          continue;
        }
        if (top > rows.top[row] && rows.sum[row] > 0.f) {
          const float factor = std::exp(rows.top[row] - top);
          rows.sum[row] *= factor;
          scale_row(rows.out + row * rows.value_stride, value_channels, factor);
          scale_row(rows.rotated_out + row * rows.value_stride, value_channels, factor);
        }
        rows.top[row] = top;
        rows.sum[row] += kernels.attend->exp_sum(scores, n, top);
      }
      float* out = (tile.values_rotated ? rows.rotated_out : rows.out) + block * rows.value_stride;
      tiles.multiply({rows.scores, kTokens, tile.values, tile.value_stride, out, rows.value_stride, block_rows,
                      tile.value_stride == value_channels ? value_channels : layer.value_dim, tile.tokens, 1});
    }
  };
  const auto expand_f16 = [&](const std::uint16_t* keys, const std::uint16_t* values, int tokens_seen, Tile* tile) {
    if (keys != nullptr) {
      tiles.transpose_f16(keys, tokens_seen, layer.key_dim, key_tile, kTokens);
      tile->keys = key_tile;
    }
    if (values != nullptr) {
      kernels.coding->f32_from_f16(values, value_tile,
                                   static_cast<std::size_t>(tokens_seen) * static_cast<std::size_t>(layer.value_dim));
      tile->values = value_tile;
      tile->value_stride = layer.value_dim;
    }
  };

  const auto sinks_seen = static_cast<int>(std::min<std::int64_t>(sinks(), last_index + 1));
  if (sinks_seen > 0) {
    const auto held = static_cast<std::size_t>(sinks()), at = static_cast<std::size_t>(head) * held;
    const std::uint16_t* block = s.sinks->layers[static_cast<std::size_t>(stored)].data();
    Tile tile;
    tile.tokens = sinks_seen;
    expand_f16(block + at * static_cast<std::size_t>(layer.key_dim),
               block + static_cast<std::size_t>(layer.kv_heads) * held * static_cast<std::size_t>(layer.key_dim) +
                   at * static_cast<std::size_t>(layer.value_dim),
               sinks_seen, &tile);
    attend_page(tile);
  }
  for (const Column& column : s.columns) {
    const int seen = kv::visible_tokens(column, last_index);
    if (seen == 0) break;
    const kv::PageId id = column.pages[static_cast<std::size_t>(store.first_head + head)];
    // The first row sees furthest back: what it does not see, no row sees.
    const std::int32_t oldest = s.positions[static_cast<std::size_t>(first_index)];
    if (id == kv::kNoPage || kv::first_visible(s, column.first, seen, oldest, layer.sliding_window) == seen) continue;
    const kv::Page& page = storage.page(id);
    const BlockView keys = kv::view_block(storage, shape, page, kv::kKey);
    const BlockView values = kv::view_block(storage, shape, page, kv::kValue);
    Tile tile;
    tile.tokens = seen;
    tile.first = column.first;
    expand_f16(keys.level == 0 ? keys.numbers() : nullptr, values.level == 0 ? values.numbers() : nullptr, seen, &tile);
    if (keys.level > 0) {
      const quant::KeyLayout& layout = key_layouts[static_cast<std::size_t>(keys.level)];
      for (const quant::KeyRun& run : layout.runs) {
        const std::ptrdiff_t channel = run.first_quad * 4;
        float* out = key_tile + channel * kTokens;
        if (run.bits == 0) {
          float means[simd::kTileChannels];
          kernels.coding->f32_from_f16(keys.min + channel, means, static_cast<std::size_t>(run.quads) * 4);
          for (int c = 0; c < run.quads * 4; ++c) std::fill_n(out + c * kTokens, kTokens, means[c]);
          continue;
        }
        const quant::Width width = quant::shifted_width(run.bits, options.spec.shift, clip);
        const std::ptrdiff_t slot = layout.groups > 0 ? static_cast<std::ptrdiff_t>(run.group) * kTokens : channel;
        tiles.expand_keys({keys.codes + run.offset, run.bits, run.quads, 0, keys.scale + slot, keys.min + slot,
                           layout.groups > 0 ? 1 : 0, width.multiple, width.center, out, kTokens});
      }
      tile.keys = key_tile;
      tile.keys_in_order = true;
    }
    if (values.level > 0) {
      const quant::ValueLayout& layout = store.value_layouts[static_cast<std::size_t>(values.level)];
      const quant::Width width = quant::shifted_width(layout.bits, options.spec.shift, clip);
      for (std::size_t g = 0; g < layout.runs.size(); ++g) {
        const quant::ValueRun& run = layout.runs[g];
        tiles.expand_values({values.codes + run.first_channel * 4, layout.bits, run.channels,
                             static_cast<std::ptrdiff_t>(layout.row_bytes), values.scale + g * kTokens,
                             values.min + g * kTokens, 1, width.multiple, width.center, value_tile + run.first_channel,
                             value_channels});
      }
      tile.values = value_tile;
      tile.value_stride = value_channels;
      tile.values_rotated = layout.rotated > 0;
    }
    attend_page(tile);
  }

  const int rotated = store.value_layouts[0].rotated;
  for (int first = 0; rotated > 0 && first < layer.value_dim; first += rotated) {
    kernels.coding->rotate_rows(rows.rotated_out + first, rows.count, rows.value_stride, rotated);
  }
  for (int r = 0; r < rows.count; ++r) {
    float* result = partial(part, layer, first_token + r / heads, head * heads + r % heads, 0);
    const float* a = rows.out + r * rows.value_stride;
    const float* b = rows.rotated_out + r * rows.value_stride;
    for (int c = 0; c < layer.value_dim; ++c) result[c] = a[c] + b[c];
    result[layer.value_dim] = rows.top[r];
    result[layer.value_dim + 1] = rows.sum[r];
  }
}

}  // namespace neve
