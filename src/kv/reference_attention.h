// For tests: attention in double precision over plain rows of numbers, and the rows that a cache holds, read from its
// blocks one code at a time (quant/code_reader.h). Shares no code with attend_*.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "kv/cache_impl.h"
#include "kv/cache_runner.h"
#include "quant/code_reader.h"

namespace neve::kv {

// Keys and values of one KV head, and where its tokens stand.
struct HeadNumbers {
  std::vector<double> keys;    // [tokens][key_dim]
  std::vector<double> values;  // [tokens][value_dim]
  std::vector<std::int32_t> positions;
};

inline double as_half(float x) { return static_cast<double>(f32_from_f16(f16_from_f32(x))); }

// What was given, rounded to f16: what a 16-bit cache holds.
inline HeadNumbers given_numbers(const LayerGeometry& g, int layer, int head, const std::vector<GivenToken>& tokens) {
  HeadNumbers n;
  for (const GivenToken& t : tokens) {
    for (int c = 0; c < g.key_dim; ++c)
      n.keys.push_back(as_half(token_number(t.seed, t.id, Row::kKey, layer, head, c)));
    for (int c = 0; c < g.value_dim; ++c) {
      n.values.push_back(as_half(token_number(t.seed, t.id, Row::kValue, layer, head, c)));
    }
    n.positions.push_back(t.position);
  }
  return n;
}

// What the cache holds of a sequence now, of the step that was begun too. NaN where a page was freed.
inline HeadNumbers held_numbers(KvCache::Impl& impl, int sequence, int layer, int head) {
  const Sequence& s = *impl.find(sequence);
  const int stored = impl.shape.stored_of[static_cast<std::size_t>(layer)];
  const StoredLayer& store = impl.shape.stored[static_cast<std::size_t>(stored)];
  HeadNumbers n;
  n.positions = s.positions;
  const auto tokens = static_cast<std::int64_t>(s.positions.size());
  const auto sinks = std::min<std::int64_t>(impl.sinks(), tokens);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Kind kind : {kKey, kValue}) {
    const std::int64_t dim = store.dim[kind];
    std::vector<double>& out = kind == kKey ? n.keys : n.values;
    out.assign(static_cast<std::size_t>(tokens * dim), nan);
    if (sinks > 0) {
      // [heads][sinks][key_dim], then [heads][sinks][value_dim].
      const std::int64_t values_at = kind == kKey ? 0 : store.kv_heads * impl.sinks() * store.dim[kKey];
      const std::uint16_t* block = s.sinks->layers[static_cast<std::size_t>(stored)].data() + values_at;
      for (std::int64_t i = 0; i < sinks * dim; ++i) {
        out[static_cast<std::size_t>(i)] = quant::half_at(block, head * impl.sinks() * dim + i);
      }
    }
    for (const Column& column : s.columns) {
      const PageId id = column.pages[static_cast<std::size_t>(store.first_head + head)];
      if (id == kNoPage) continue;
      const Page& page = impl.storage.page(id);
      const Stand& stand = page.now[kind];
      const std::uint8_t* codes = impl.storage.codes(page, kind, stand);
      const int count =
          static_cast<int>(std::min<std::int64_t>(tokens - column.first, column.closed ? column.tokens : kPageTokens));
      std::vector<double> rows;
      if (stand.level == 0) {
        for (std::int64_t i = 0; i < count * dim; ++i) {
          rows.push_back(quant::half_at(reinterpret_cast<const std::uint16_t*>(codes), i));
        }
      } else {
        const std::uint16_t* scale = impl.storage.scales(page, kind, stand);
        const std::uint16_t* min = scale + impl.shape.slot_bytes[static_cast<std::size_t>(store.slot_pool[kind])] / 4;
        const KvSpec& spec = impl.options.spec;
        if (kind == kKey) {
          const auto& layouts = key_layouts(impl.shape, s.known_maps(), stored, head);
          rows = quant::read_keys(codes, layouts[stand.level], scale, min, count, spec.shift, spec.clip);
        } else {
          const quant::ValueLayout& layout = store.value_layouts[stand.level];
          rows = quant::read_values(codes, layout, scale, min, count, spec.shift, spec.clip);
          quant::rotate_heads(&rows, count, store.dim[kValue], layout.rotated);
        }
      }
      std::copy(rows.begin(), rows.end(), out.begin() + column.first * dim);
    }
  }
  return n;
}

// The attention of one query at token `index` over the tokens up to it that its window lets it see.
inline std::vector<double> attend_reference(const LayerGeometry& g, const HeadNumbers& n,
                                            const std::vector<float>& query, std::int64_t index) {
  const double scale = g.scale != 0.f ? static_cast<double>(g.scale) : 1 / std::sqrt(static_cast<double>(g.key_dim));
  const double cap = static_cast<double>(g.logit_softcap);
  const std::int64_t here = n.positions[static_cast<std::size_t>(index)];
  std::vector<double> scores;
  std::vector<std::int64_t> seen;
  for (std::int64_t t = 0; t <= index; ++t) {
    if (g.sliding_window > 0 && n.positions[static_cast<std::size_t>(t)] <= here - g.sliding_window) continue;
    double dot = 0;
    for (int c = 0; c < g.key_dim; ++c) {
      dot +=
          static_cast<double>(query[static_cast<std::size_t>(c)]) * n.keys[static_cast<std::size_t>(t * g.key_dim + c)];
    }
    dot *= scale;
    scores.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
    seen.push_back(t);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(static_cast<std::size_t>(g.value_dim), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double weight = std::exp(scores[i] - top);
    sum += weight;
    for (int c = 0; c < g.value_dim; ++c) {
      out[static_cast<std::size_t>(c)] += weight * n.values[static_cast<std::size_t>(seen[i] * g.value_dim + c)];
    }
  }
  for (double& x : out) x /= sum;
  return out;
}

}  // namespace neve::kv
