#include "kv/query_statistics.h"

#include <algorithm>

#include "base/float16.h"
#include "quant/key_map.h"

namespace neve::kv {
namespace {

// The layouts of all levels from the importance of channels; a quad is never wider than on the level before.
std::vector<quant::KeyLayout> make_layouts(const Shape& shape, int channels, const std::vector<float>& importance) {
  const std::vector<std::uint16_t> order = quant::order_channels(importance);
  const int quads = quant::padded_channels(channels) / 4;
  std::vector<float> quad_importance(static_cast<std::size_t>(quads), 0.f);
  for (std::size_t i = 0; i < order.size(); ++i) quad_importance[i / 4] += importance[order[i]];
  std::vector<quant::KeyLayout> layouts;
  quant::QuadWidths widths = {quads, 0, 0};
  layouts.push_back(quant::graded_key_layout(channels, order, widths));
  for (std::size_t level = 1; level < shape.levels.size(); ++level) {
    const double bits = shape.levels[level].bits[kKey];
    if (bits < 8.0) widths = quant::allocate_widths(quad_importance, graded_total_bits(channels, bits), widths);
    layouts.push_back(quant::graded_key_layout(channels, order, widths));
  }
  return layouts;
}

}  // namespace

std::uint64_t KeyMaps::bytes() const {
  std::uint64_t bytes = heads.capacity() * sizeof(heads[0]);
  for (const std::vector<quant::KeyLayout>& levels : heads) {
    bytes += levels.capacity() * sizeof(quant::KeyLayout);
    for (const quant::KeyLayout& layout : levels) {
      bytes += layout.order.capacity() * sizeof(layout.order[0]) + layout.runs.capacity() * sizeof(layout.runs[0]);
    }
  }
  return bytes;
}

std::int64_t QueryStatistics::map_tokens(const KvSpec& spec) {
  return spec.sinks + kPageTokens + std::min(spec.window, kPageTokens);
}

void QueryStatistics::start(const Shape& shape) {
  std::size_t total = 0;
  for (const StoredLayer& layer : shape.stored) {
    for (int head = 0; head < layer.kv_heads; ++head) {
      offsets_.push_back(total);
      total += static_cast<std::size_t>(layer.dim[kKey]);
    }
  }
  counted_.assign(offsets_.size(), 0);
  sums_.assign(total, 0.0);
  ranges_.assign(total, 0.0);
}

void QueryStatistics::add_page(int stored_head, const std::uint16_t* keys, int channels) {
  double* range = ranges_.data() + offsets_[static_cast<std::size_t>(stored_head)];
  for (int c = 0; c < channels; ++c) {
    float low = f32_from_f16(keys[c]), high = low;
    for (int t = 1; t < kPageTokens; ++t) {
      const float x = f32_from_f16(keys[t * channels + c]);
      low = std::min(low, x);
      high = std::max(high, x);
    }
    range[c] += static_cast<double>(high - low) * static_cast<double>(high - low);
  }
}

KeyMaps QueryStatistics::make_maps(const Shape& shape) const {
  KeyMaps maps;
  for (const StoredLayer& layer : shape.stored) {
    const auto channels = static_cast<std::size_t>(layer.dim[kKey]);
    for (int head = 0; head < layer.kv_heads; ++head) {
      const std::size_t at = offsets_[static_cast<std::size_t>(layer.first_head + head)];
      std::vector<float> importance(channels);
      for (std::size_t c = 0; c < channels; ++c) importance[c] = static_cast<float>(sums_[at + c] * ranges_[at + c]);
      maps.heads.push_back(make_layouts(shape, layer.dim[kKey], importance));
    }
  }
  return maps;
}

}  // namespace neve::kv
