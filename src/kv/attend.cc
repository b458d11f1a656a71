// append, attend and merge: which thread does what. The work of an item is in decode_item.cc and attend_tile.cc.
//
// Items: decode has one per token, KV head and run of 8 columns; prefill one per KV head and tile of queries. Each item
// writes its own partial result and merge joins them in index order, so nothing depends on which thread took which item.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kv/cache_impl.h"
#include "kv/decode_item.h"
#include "quant/grid.h"

namespace neve {

using kv::ActivePart;
using kv::Sequence;

namespace {

int query_heads_per_kv(const LayerGeometry& layer) { return layer.query_heads / layer.kv_heads; }

// Queries of one tile: enough rows that expanding a page costs little beside the products.
int tile_tokens(const LayerGeometry& layer) { return std::max(8, 256 / std::max(4, query_heads_per_kv(layer))); }

std::int64_t tiles_of(const ActivePart& part, const LayerGeometry& layer) {
  const int tokens = tile_tokens(layer);
  return (part.tokens + tokens - 1) / tokens;
}

// Where partial result (token, query head, run) of a part starts.
std::uint64_t partial_at(const ActivePart& part, const LayerGeometry& layer, std::int64_t token, int query_head,
                         std::int64_t run) {
  const std::int64_t index = (token * layer.query_heads + query_head) * (part.tiled ? 1 : part.runs) + run;
  return part.partial + static_cast<std::uint64_t>(index) * kv::partial_floats(layer.value_dim);
}

}  // namespace

void KvCache::Impl::start_attention() {
  for (std::size_t layer = 0; layer < shape.layers.size(); ++layer) next_item[layer].store(0);
  not_finite.store(kAllFinite);
  std::uint64_t floats = 0;
  for (ActivePart& part : parts) {
    part.runs = std::max<std::int64_t>(
        1, (static_cast<std::int64_t>(part.sequence->columns.size()) + kv::kRunColumns - 1) / kv::kRunColumns);
    part.partial = floats;
    std::uint64_t most = 0;
    for (const LayerGeometry& layer : shape.layers) {
      most = std::max(most, static_cast<std::uint64_t>(layer.query_heads) * kv::partial_floats(layer.value_dim));
    }
    floats += most * static_cast<std::uint64_t>(part.tokens) * static_cast<std::uint64_t>(part.tiled ? 1 : part.runs);
  }
  if (storage.backed() && partials.size() < floats) partials.resize(floats);
}

std::int64_t KvCache::Impl::items_of(const ActivePart& part, const LayerGeometry& layer) const {
  return layer.kv_heads * (part.tiled ? tiles_of(part, layer) : part.tokens * part.runs);
}

void KvCache::Impl::note_not_finite(std::int64_t row, int stored_head, kv::Kind kind) {
  const std::int64_t place = (row * shape.heads + stored_head) * 2 + kind;
  std::int64_t first = not_finite.load();
  while (place < first && !not_finite.compare_exchange_weak(first, place)) continue;
}

Status KvCache::Impl::finite_step() const {
  const std::int64_t place = not_finite.load();
  if (place == kAllFinite) return ok_status();
  const std::int64_t row = place / 2 / shape.heads;
  const auto part =
      std::find_if(parts.begin(), parts.end(), [&](const ActivePart& p) { return row < p.first_row + p.tokens; });
  const int head = static_cast<int>(place / 2 % shape.heads);
  const auto stored = std::find_if(shape.stored.rbegin(), shape.stored.rend(),
                                   [&](const kv::StoredLayer& layer) { return layer.first_head <= head; });
  return Status(Code::kNotFinite, "layer " + std::to_string(stored->layer) + ", head " +
                                      std::to_string(head - stored->first_head) + ", token " +
                                      std::to_string(part->sequence->committed + row - part->first_row) +
                                      " of sequence " + std::to_string(part->sequence->id) + ": wanted a finite " +
                                      (place % 2 == kv::kKey ? "key" : "value") + " within f16, got none");
}

void KvCache::append(int layer_index, int slice, int slices, HeadRows queries, HeadRows keys, HeadRows values) {
  Impl& impl = *impl_;
  const LayerGeometry& layer = impl.shape.layers[static_cast<std::size_t>(layer_index)];
  if (layer.shares_layer >= 0) return;
  const int stored = impl.shape.stored_of[static_cast<std::size_t>(layer_index)];
  const kv::StoredLayer& store = impl.shape.stored[static_cast<std::size_t>(stored)];
  const simd::CodingKernels& coding = *impl.kernels.coding;
  const auto key_dim = static_cast<std::size_t>(layer.key_dim), value_dim = static_cast<std::size_t>(layer.value_dim);
  const auto sinks = static_cast<std::size_t>(impl.sinks());
  const std::int64_t map_tokens = kv::QueryStatistics::map_tokens(impl.options.spec);
  const int group = query_heads_per_kv(layer);
  std::int64_t unit = 0;
  for (const ActivePart& part : impl.parts) {
    Sequence& s = *part.sequence;
    for (int head = 0; head < layer.kv_heads; ++head, ++unit) {
      if (unit % slices != slice) continue;
      const int stored_head = store.first_head + head;
      std::size_t column = 0;
      while (column < s.columns.size() &&
             (s.columns[column].closed || s.columns[column].first + kv::kPageTokens <= s.committed)) {
        ++column;
      }
      for (int t = 0; t < part.tokens; ++t) {
        const std::int64_t index = s.committed + t, row = part.first_row + t;
        std::uint16_t *key, *value;
        if (index < impl.sinks()) {
          std::uint16_t* block = s.sinks->layers[static_cast<std::size_t>(stored)].data();
          const auto at = static_cast<std::size_t>(head) * sinks + static_cast<std::size_t>(index);
          key = block + at * key_dim;
          value = block + static_cast<std::size_t>(layer.kv_heads) * sinks * key_dim + at * value_dim;
        } else {
          while (index >= s.columns[column].first + kv::kPageTokens) ++column;
          const kv::Page& page = impl.storage.page(s.columns[column].pages[static_cast<std::size_t>(stored_head)]);
          const auto at = static_cast<std::size_t>(index - s.columns[column].first);
          const auto block = [&](kv::Kind kind) {
            return reinterpret_cast<std::uint16_t*>(impl.storage.codes(page, kind, page.now[kind]));
          };
          key = block(kv::kKey) + at * key_dim;
          value = block(kv::kValue) + at * value_dim;
        }
        coding.f16_from_f32(keys.data + row * keys.token_stride + head * keys.head_stride, key, key_dim);
        coding.f16_from_f32(values.data + row * values.token_stride + head * values.head_stride, value, value_dim);
        if (!quant::all_finite(key, key_dim)) impl.note_not_finite(row, stored_head, kv::kKey);
        if (!quant::all_finite(value, value_dim)) impl.note_not_finite(row, stored_head, kv::kValue);
        if (s.maps != nullptr && !s.maps->known && index < map_tokens) {
          s.statistics.add(stored_head, index,
                           queries.data + row * queries.token_stride + head * group * queries.head_stride, group,
                           queries.head_stride, layer.key_dim);
        }
      }
    }
  }
}

void KvCache::Impl::attend_item(int layer_index, const ActivePart& part, std::int64_t item, HeadRows queries,
                                std::vector<float>* floats) {
  const LayerGeometry& layer = shape.layers[static_cast<std::size_t>(layer_index)];
  const int head = static_cast<int>(item % layer.kv_heads);
  item /= layer.kv_heads;
  if (part.tiled) {
    // Late tiles see more keys: they come first.
    const int size = tile_tokens(layer);
    const int first = static_cast<int>(tiles_of(part, layer) - 1 - item) * size;
    attend_tile(layer_index, part, head, first, std::min(size, part.tokens - first), queries, floats);
  } else {
    kv::DecodeItem decode(*this, layer_index, part, static_cast<int>(item / part.runs), head, item % part.runs);
    decode.compute(queries, floats);
  }
}

void KvCache::attend(int layer_index, int slice, int, HeadRows queries) {
  Impl& impl = *impl_;
  const LayerGeometry& layer = impl.shape.layers[static_cast<std::size_t>(layer_index)];
  std::int64_t end = 0;
  for (const ActivePart& part : impl.parts) end += impl.items_of(part, layer);
  std::atomic<std::int64_t>& next = impl.next_item[static_cast<std::size_t>(layer_index)];
  for (std::int64_t item = next.fetch_add(1); item < end; item = next.fetch_add(1)) {
    std::int64_t at = item;
    const ActivePart* part = impl.parts.data();
    for (std::int64_t count = impl.items_of(*part, layer); at >= count; count = impl.items_of(*part, layer)) {
      at -= count;
      ++part;
    }
    impl.attend_item(layer_index, *part, at, queries, &impl.scratch[static_cast<std::size_t>(slice)]);
  }
}

float* KvCache::Impl::partial(const ActivePart& part, const LayerGeometry& layer, std::int64_t token, int query_head,
                              std::int64_t run) {
  return partials.data() + partial_at(part, layer, token, query_head, run);
}

void KvCache::merge(int layer_index, int slice, int slices, MutableHeadRows out) {
  Impl& impl = *impl_;
  const LayerGeometry& layer = impl.shape.layers[static_cast<std::size_t>(layer_index)];
  const int dim = layer.value_dim;
  std::int64_t unit = 0;
  for (const ActivePart& part : impl.parts) {
    const std::int64_t runs = part.tiled ? 1 : part.runs;
    for (int token = 0; token < part.tokens; ++token) {
      for (int head = 0; head < layer.query_heads; ++head, ++unit) {
        if (unit % slices != slice) continue;
        float* to = out.data + (part.first_row + token) * out.token_stride + head * out.head_stride;
        const float* from = impl.partial(part, layer, token, head, 0);
        const std::uint64_t stride = kv::partial_floats(dim);
        float top = -std::numeric_limits<float>::infinity();
        for (std::int64_t run = 0; run < runs; ++run)
          top = std::max(top, from[static_cast<std::uint64_t>(run) * stride + static_cast<std::uint64_t>(dim)]);
        std::fill_n(to, dim, 0.f);
        float sum = 0.f;
        for (std::int64_t run = 0; run < runs; ++run) {
          const float* partial = from + static_cast<std::uint64_t>(run) * stride;
          if (partial[dim + 1] == 0.f) continue;
          const float weight = std::exp(partial[dim] - top);
          sum += weight * partial[dim + 1];
          for (int c = 0; c < dim; ++c) to[c] += weight * partial[c];
        }
        const float inverse = sum > 0.f ? 1.f / sum : 0.f;
        for (int c = 0; c < dim; ++c) to[c] *= inverse;
      }
    }
  }
}

}  // namespace neve
