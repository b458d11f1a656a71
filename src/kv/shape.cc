#include "kv/shape.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace neve::kv {
namespace {

constexpr int kMostChannels = 576;

Status wrong(int layer, const std::string& what) {
  return Status(Code::kInvalidArgument, "layer " + std::to_string(layer) + ": " + what);
}

Status check_layer(const std::vector<LayerGeometry>& layers, int index) {
  const LayerGeometry& g = layers[static_cast<std::size_t>(index)];
  if (g.kv_heads < 1 || g.query_heads < 1 || g.query_heads % g.kv_heads != 0) {
    return wrong(index, "wanted query heads that are a multiple of kv heads, got " + std::to_string(g.query_heads) +
                            " and " + std::to_string(g.kv_heads));
  }
  for (const int dim : {g.key_dim, g.value_dim}) {
    if (dim < 1 || dim > kMostChannels) {
      return wrong(index,
                   "wanted a head size of 1 to " + std::to_string(kMostChannels) + ", got " + std::to_string(dim));
    }
  }
  if (g.sliding_window < 0)
    return wrong(index, "wanted a sliding window >= 0, got " + std::to_string(g.sliding_window));
  if (g.shares_layer >= 0) {
    if (g.shares_layer >= index) {
      return wrong(index, "wanted to share an earlier layer, got layer " + std::to_string(g.shares_layer));
    }
    const LayerGeometry& other = layers[static_cast<std::size_t>(g.shares_layer)];
    if (other.shares_layer >= 0 || other.kv_heads != g.kv_heads || other.key_dim != g.key_dim ||
        other.value_dim != g.value_dim || other.sliding_window != g.sliding_window) {
      return wrong(index,
                   "shares layer " + std::to_string(g.shares_layer) + ", whose kv heads, head sizes or window differ");
    }
  }
  return ok_status();
}

// A spec that was not parsed can say anything.
Status check_spec(const KvSpec& spec) {
  if (spec.sinks < 0 || spec.sinks > kPageTokens || spec.window < 0) {
    return Status(Code::kInvalidArgument, "cache: wanted 0 to " + std::to_string(kPageTokens) +
                                              " sinks and a window of at least 0, got " + std::to_string(spec.sinks) +
                                              " and " + std::to_string(spec.window));
  }
  if (spec.group < 4 || spec.group > kPageTokens || spec.group % 4 != 0 || !(spec.clip >= 0.5 && spec.clip <= 1.0)) {
    return Status(Code::kInvalidArgument, "cache: wanted groups of 4, 8 ... " + std::to_string(kPageTokens) +
                                              " and a clip of 0.5 to 1, got " + std::to_string(spec.group) + " and " +
                                              std::to_string(spec.clip));
  }
  return ok_status();
}

// Index of the pool with these blocks, made if there is none.
int pool_for(std::vector<PoolShape>* pools, std::uint64_t top_bytes, int orders, bool spare) {
  for (std::size_t i = 0; i < pools->size(); ++i) {
    if ((*pools)[i].top_bytes == top_bytes && (*pools)[i].orders == orders) {
      (*pools)[i].has_spare = (*pools)[i].has_spare || spare;
      return static_cast<int>(i);
    }
  }
  pools->push_back({top_bytes, orders, spare, 0});
  return static_cast<int>(pools->size()) - 1;
}

int slot_pool_for(std::vector<std::uint64_t>* pools, std::uint64_t bytes) {
  const auto found = std::find(pools->begin(), pools->end(), bytes);
  if (found != pools->end()) return static_cast<int>(found - pools->begin());
  pools->push_back(bytes);
  return static_cast<int>(pools->size()) - 1;
}

std::vector<Level> make_levels(const KvSpec& spec) {
  std::vector<Level> levels(1);
  switch (spec.mode) {
    case KvMode::kF16:
    case KvMode::kPeer:
      break;
    case KvMode::kFixed:
      levels.push_back({{static_cast<double>(spec.bits), static_cast<double>(spec.bits)}});
      break;
    case KvMode::kGraded: {
      const GradedWidths widths = split_width(spec.width);
      levels.push_back({{widths.keys, static_cast<double>(widths.values)}});
      break;
    }
    case KvMode::kPaper:
    case KvMode::kAuto: {
      const int lowest = spec.mode == KvMode::kPaper ? spec.bits : 2;
      for (const int bits : {8, 4, 2}) {
        if (bits >= lowest) levels.push_back({{static_cast<double>(bits), static_cast<double>(bits)}});
      }
      break;
    }
  }
  return levels;
}

}  // namespace

GradedWidths split_width(double width) {
  // Values take the largest of 2, 4, 8 that leaves keys at least as much: keys carry the damage (docs/graded-keys.md).
  // Above (8, 4), which is 6, keys of 8 bits are not enough for the mean: values have 8.
  const int values = width > 6.0 ? 8 : width >= 4.0 ? 4 : 2;
  return {2.0 * width - values, values};
}

int graded_total_bits(int channels, double bits) {
  const int quads = quant::padded_channels(channels) / 4;
  return static_cast<int>(std::floor(bits * quads + 1e-9)) / 2 * 2;
}

Result<Shape> Shape::create(std::vector<LayerGeometry> layers, const CacheOptions& options) {
  const KvSpec& spec = options.spec;
  Shape shape;
  if (spec.mode == KvMode::kPeer) {
    return Status(Code::kUnsupported, "--kv " + spec.text + " is llama.cpp's own cache; wanted one of neve's");
  }
  NEVE_RETURN_IF_ERROR(check_spec(spec));
  if (layers.empty()) return Status(Code::kInvalidArgument, "cache: wanted at least one attention layer, got none");
  shape.levels = make_levels(spec);
  shape.graded = spec.mode == KvMode::kGraded || spec.mode == KvMode::kAuto;
  const bool ladder = spec.mode == KvMode::kPaper || spec.mode == KvMode::kAuto;
  if (spec.mode == KvMode::kGraded) shape.graded_key_bits = shape.levels[1].bits[kKey];
  const bool spare = options.budget_bytes > 0 || spec.mode == KvMode::kPaper;
  for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
    NEVE_RETURN_IF_ERROR(check_layer(layers, index));
    LayerGeometry& g = layers[static_cast<std::size_t>(index)];
    if (g.scale == 0.f) g.scale = 1.f / std::sqrt(static_cast<float>(g.key_dim));
    if (g.shares_layer >= 0) {
      shape.stored_of.push_back(shape.stored_of[static_cast<std::size_t>(g.shares_layer)]);
      continue;
    }
    StoredLayer stored;
    stored.layer = index;
    stored.kv_heads = g.kv_heads;
    stored.first_head = shape.heads;
    stored.sliding_window = g.sliding_window;
    stored.dim = {g.key_dim, g.value_dim};
    shape.heads += g.kv_heads;
    const int key_group = spec.mode == KvMode::kPaper ? spec.group : 0;
    const int rotate = shape.graded ? 1 : 0;
    stored.key_layouts.push_back(quant::uniform_key_layout(g.key_dim, 8, key_group));
    stored.value_layouts.push_back(quant::value_layout(g.value_dim, 8, spec.group, rotate));
    for (const Kind kind : {kKey, kValue}) {
      const int dim = stored.dim[kind];
      const std::uint64_t top = static_cast<std::uint64_t>(quant::padded_channels(dim)) * kPageTokens * 2;
      const int orders = ladder ? 4 : 1;
      stored.placement[kind].push_back({pool_for(&shape.pools, top, orders, spare), 0});
      for (std::size_t level = 1; level < shape.levels.size(); ++level) {
        const double bits = shape.levels[level].bits[kind];
        if (ladder) {
          const int order = bits == 8 ? 1 : bits == 4 ? 2 : 3;
          stored.placement[kind].push_back({stored.placement[kind][0].pool, order});
        } else {
          const std::uint64_t bytes = kind == kKey && shape.graded
                                          ? static_cast<std::uint64_t>(graded_total_bits(dim, bits)) * 64
                                          : quant::key_code_bytes(dim, static_cast<int>(bits));
          stored.placement[kind].push_back({pool_for(&shape.pools, bytes, 1, false), 0});
        }
      }
    }
    for (std::size_t level = 1; level < shape.levels.size(); ++level) {
      const auto bits = [&](Kind kind) { return static_cast<int>(shape.levels[level].bits[kind]); };
      stored.key_layouts.push_back(quant::uniform_key_layout(g.key_dim, bits(kKey), key_group));
      stored.value_layouts.push_back(quant::value_layout(g.value_dim, bits(kValue), spec.group, rotate));
    }
    if (shape.levels.size() > 1) {
      const std::uint64_t slot_bytes[2] = {quant::key_scale_bytes(g.key_dim, key_group),
                                           quant::value_scale_bytes(g.value_dim, spec.group)};
      for (const Kind kind : {kKey, kValue}) {
        stored.slot_pool[kind] = slot_pool_for(&shape.slot_bytes, slot_bytes[kind]);
        PoolShape& pool = shape.pools[static_cast<std::size_t>(stored.placement[kind][0].pool)];
        pool.most_slot_bytes = std::max(pool.most_slot_bytes, slot_bytes[kind]);
      }
    }
    stored.sink_bytes_per_token =
        static_cast<std::uint64_t>(g.kv_heads) * 2 * static_cast<std::uint64_t>(g.key_dim + g.value_dim);
    shape.stored_of.push_back(static_cast<int>(shape.stored.size()));
    shape.stored.push_back(std::move(stored));
  }
  shape.layers = std::move(layers);
  return shape;
}

std::uint64_t Shape::block_bytes(const StoredLayer& layer, Kind kind, int level) const {
  const Placement& at = layer.placement[kind][static_cast<std::size_t>(level)];
  const std::uint64_t codes = pools[static_cast<std::size_t>(at.pool)].top_bytes >> at.order;
  return codes + (level > 0 ? slot_bytes[static_cast<std::size_t>(layer.slot_pool[kind])] : 0);
}

std::uint64_t Shape::sink_bytes(int sinks) const {
  std::uint64_t bytes = 0;
  for (const StoredLayer& layer : stored) bytes += layer.sink_bytes_per_token * static_cast<std::uint64_t>(sinks);
  return bytes;
}

std::int64_t columns_of(const KvSpec& spec, std::int64_t tokens) {
  return tokens <= spec.sinks ? 0 : (tokens - spec.sinks + kPageTokens - 1) / kPageTokens;
}

namespace {

// What sequences hold: blocks by pool, in units, and all else.
struct Held {
  std::vector<std::uint64_t> units;
  std::uint64_t bytes = 0;  // sinks and scales
};

// `sequences` sequences whose last `high` columns stand at 16 bit and the others at `level`.
Held hold(const Shape& shape, const KvSpec& spec, std::int64_t columns, std::int64_t high, int level, int sequences) {
  const auto count = static_cast<std::uint64_t>(sequences);
  Held held = {std::vector<std::uint64_t>(shape.pools.size(), 0), shape.sink_bytes(spec.sinks) * count};
  for (const StoredLayer& layer : shape.stored) {
    std::int64_t kept = columns;
    if (layer.sliding_window > 0) {
      // Whole pages that left the window are freed, with the slack that a rollback of a window may need.
      const std::int64_t visible = layer.sliding_window + spec.window;
      kept = std::min(columns, (visible + kPageTokens - 1) / kPageTokens + 1);
    }
    const std::int64_t top = std::min(kept, high);
    const auto add = [&](Kind kind, int on, std::int64_t pages) {
      const Placement& at = layer.placement[kind][static_cast<std::size_t>(on)];
      const auto pool = static_cast<std::size_t>(at.pool);
      const std::uint64_t blocks = static_cast<std::uint64_t>(pages * layer.kv_heads) * count;
      held.units[pool] += blocks * (shape.pools[pool].units_per_top() >> at.order);
      if (on > 0) held.bytes += blocks * shape.slot_bytes[static_cast<std::size_t>(layer.slot_pool[kind])];
    };
    for (const Kind kind : kKinds) {
      add(kind, 0, top);
      if (kept > top) add(kind, level, kept - top);
    }
  }
  return held;
}

}  // namespace

std::uint64_t least_bytes(const Shape& shape, const CacheOptions& options, std::int64_t tokens, int sequences) {
  const std::int64_t columns = columns_of(options.spec, tokens);
  const std::int64_t high = std::min<std::int64_t>(columns, 1 + (options.spec.window + kPageTokens - 1) / kPageTokens);
  const Held held = hold(shape, options.spec, columns, high, shape.lowest(), sequences);
  std::uint64_t bytes = held.bytes;
  for (std::size_t i = 0; i < shape.pools.size(); ++i) {
    const PoolShape& pool = shape.pools[i];
    const std::uint64_t blocks = pool.top_bytes / pool.units_per_top() * held.units[i];
    bytes += std::max(blocks + (pool.has_spare ? pool.top_bytes : 0), pool.held_bytes(held.units[i]));
  }
  return bytes;
}

std::uint64_t f16_bytes(const Shape& shape, const CacheOptions& options, std::int64_t tokens, int sequences) {
  const std::int64_t columns = columns_of(options.spec, tokens);
  const Held held = hold(shape, options.spec, columns, columns, 0, sequences);
  std::uint64_t bytes = held.bytes;
  for (std::size_t i = 0; i < shape.pools.size(); ++i) {
    bytes += shape.pools[i].top_bytes / shape.pools[i].units_per_top() * held.units[i];
  }
  return bytes;
}

}  // namespace neve::kv
