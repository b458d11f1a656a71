#include "kv/decode_page.h"

#include <algorithm>
#include <utility>

namespace neve::kv {
namespace {

constexpr std::size_t kTokens = kPageTokens;

std::size_t aligned(std::size_t floats) { return (floats + 15) / 16 * 16; }

// Scales per channel are folded into the query, run by run; the offsets of all runs together are where scores start.
void score_by_channel(const DecodeQuery& query, const quant::KeyLayout& layout, const BlockView& keys, float* scores,
                      const std::uint8_t* prefetch) {
  std::fill_n(query.offset, query.heads, 0.f);
  float* scale = query.scale;
  for (const quant::KeyRun& run : layout.runs) {
    const std::ptrdiff_t channel = run.first_quad * 4;
    const quant::Width width =
        run.bits == 0 ? quant::Width{0.f, 0.f} : quant::shifted_width(run.bits, query.shift, query.clip);
    query.attend->fold_keys({query.stored_queries + channel, query.query_stride, query.heads, run.quads * 4,
                             keys.scale + channel, keys.min + channel, width.multiple, width.center, query.hi + channel,
                             key_takes_two_halves(run.bits) ? query.lo + channel : nullptr, scale, query.offset});
    scale += query.heads;
  }
  for (int h = 0; h < query.heads; ++h) std::fill_n(scores + h * query.score_stride, kTokens, query.offset[h]);
  scale = query.scale;
  for (const quant::KeyRun& run : layout.runs) {
    if (run.bits > 0) {
      const std::ptrdiff_t channel = run.first_quad * 4;
      query.attend->score_codes({keys.codes + run.offset, run.bits, run.quads, query.hi + channel,
                                 key_takes_two_halves(run.bits) ? query.lo + channel : nullptr, query.query_stride,
                                 query.heads, scale, scores, query.score_stride,
                                 prefetch != nullptr ? prefetch + run.offset : nullptr});
    }
    scale += query.heads;
  }
}

// Scales per token: score = scale_t * sum q * (code - center) + middle_t * sum q, group by group.
void score_by_token(const DecodeQuery& query, const quant::KeyLayout& layout, const BlockView& keys, float* scores) {
  // f16 1 and -127.5: with them the middle of the grid is 0 and fold_keys leaves the query as it is.
  constexpr std::uint16_t kOne = 0x3c00, kMinusMiddle = 0xd7f8;
  std::uint16_t ones[kTokens], middles[kTokens];
  std::fill_n(ones, kTokens, kOne);
  std::fill_n(middles, kTokens, kMinusMiddle);
  float scale[kTokens], min[kTokens];
  for (int h = 0; h < query.heads; ++h) std::fill_n(scores + h * query.score_stride, kTokens, 0.f);
  for (const quant::KeyRun& run : layout.runs) {
    const std::ptrdiff_t channel = run.first_quad * 4;
    const quant::Width width = quant::shifted_width(run.bits, query.shift, query.clip);
    std::int8_t* lo = key_takes_two_halves(run.bits) ? query.lo + channel : nullptr;
    std::fill_n(query.offset, query.heads, 0.f);
    query.attend->fold_keys({query.stored_queries + channel, query.query_stride, query.heads, run.quads * 4, ones,
                             middles, 1.f, width.center, query.hi + channel, lo, query.scale, query.offset});
    for (int h = 0; h < query.heads; ++h) {
      std::fill_n(query.raw + static_cast<std::size_t>(h) * kTokens, kTokens, query.offset[h]);
    }
    query.attend->score_codes({keys.codes + run.offset, run.bits, run.quads, query.hi + channel, lo, query.query_stride,
                               query.heads, query.scale, query.raw, kPageTokens, nullptr});
    const std::size_t slot = static_cast<std::size_t>(run.group) * kTokens;
    query.coding->f32_from_f16(keys.scale + slot, scale, kTokens);
    query.coding->f32_from_f16(keys.min + slot, min, kTokens);
    for (int h = 0; h < query.heads; ++h) {
      const float* q = query.stored_queries + h * query.query_stride + channel;
      float sum = 0.f;
      for (int c = 0; c < run.quads * 4; ++c) sum += q[c];
      const float* raw = query.raw + static_cast<std::size_t>(h) * kTokens;
      float* to = scores + h * query.score_stride;
      for (std::size_t t = 0; t < kTokens; ++t) {
        to[t] += scale[t] * width.multiple * raw[t] + (min[t] + 127.5f * scale[t]) * sum;
      }
    }
  }
}

}  // namespace

void DecodeQuery::allocate(const quant::KeyLayout& keys, const quant::ValueLayout& values, std::size_t scores_n,
                           std::vector<float>* floats) {
  const auto n = static_cast<std::size_t>(heads);
  const auto key_channels = static_cast<std::size_t>(quant::padded_channels(keys.channels));
  const auto value_channels = static_cast<std::size_t>(quant::padded_channels(values.channels));
  // A layout has at most four graded runs, or one per group of channels.
  const std::size_t key_runs = std::max<std::size_t>(4, keys.runs.size());
  const std::size_t halves = (n * std::max(key_channels, kTokens) + 3) / 4;
  query_stride = static_cast<std::ptrdiff_t>(key_channels);
  value_stride = static_cast<std::ptrdiff_t>(value_channels);
  score_stride = static_cast<std::ptrdiff_t>(aligned(scores_n));
  float *hi_floats = nullptr, *lo_floats = nullptr;
  const std::pair<float**, std::size_t> pieces[] = {
      {&queries, n * key_channels},
      {&stored_queries, n * key_channels},
      {&scores, n * aligned(scores_n)},
      {&out, n * value_channels},
      {&coded_out, n * value_channels},
      {&value_offset, n * values.runs.size()},
      {&weight_sum, n},
      {&raw, n * kTokens},
      {&hi_floats, halves},
      {&lo_floats, halves},
      {&scale, n * key_runs},
      {&offset, n},
  };
  std::size_t total = 0;
  for (const auto& piece : pieces) total += aligned(piece.second);
  if (floats->size() < total) floats->resize(total);
  float* next = floats->data();
  for (const auto& piece : pieces) *piece.first = std::exchange(next, next + aligned(piece.second));
  hi = reinterpret_cast<std::int8_t*>(hi_floats);
  lo = reinterpret_cast<std::int8_t*>(lo_floats);
  std::fill_n(out, n * value_channels, 0.f);
  std::fill_n(coded_out, n * value_channels, 0.f);
  std::fill_n(value_offset, n * values.runs.size(), 0.f);
}

void score_coded_keys(const DecodeQuery& query, const quant::KeyLayout& layout, const BlockView& keys, float* scores,
                      const std::uint8_t* prefetch) {
  if (layout.groups > 0) {
    score_by_token(query, layout, keys, scores);
  } else {
    score_by_channel(query, layout, keys, scores, prefetch);
  }
}

void weigh_coded_values(const DecodeQuery& query, const quant::ValueLayout& layout, const BlockView& values,
                        const float* weights, const std::uint8_t* prefetch) {
  const quant::Width width = quant::shifted_width(layout.bits, query.shift, query.clip);
  bool dominated = layout.bits == 8;
  for (int h = 0; layout.bits == 4 && h < query.heads; ++h) {
    const float top = query.attend->max(weights + h * query.score_stride, kTokens);
    dominated = dominated || top > kDominantWeight * query.weight_sum[h];
  }
  std::int8_t* lo = dominated ? query.lo : nullptr;
  for (std::size_t g = 0; g < layout.runs.size(); ++g) {
    const quant::ValueRun& run = layout.runs[g];
    query.attend->fold_values({weights, query.score_stride, query.heads, values.scale + g * kTokens,
                               values.min + g * kTokens, width.multiple, width.center, query.hi, lo, query.scale,
                               query.value_offset + g * static_cast<std::size_t>(query.heads)});
    const std::ptrdiff_t byte = run.first_channel * 4;
    query.attend->weigh_codes({values.codes + byte, layout.bits, run.channels,
                               static_cast<std::ptrdiff_t>(layout.row_bytes), query.hi, lo, query.heads, query.scale,
                               query.coded_out + run.first_channel, query.value_stride,
                               prefetch != nullptr ? prefetch + byte : nullptr});
  }
}

}  // namespace neve::kv
