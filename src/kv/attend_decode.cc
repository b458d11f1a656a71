// One decode item: the query heads of one KV head at one token, over a run of columns. Codes are read with integer dots
// and never expanded.
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
constexpr std::size_t kTokens = kv::kPageTokens;

// Pieces of a thread's scratch memory.
class Carver {
 public:
  explicit Carver(std::vector<float>* floats) : floats_(floats) {}
  void plan(std::size_t count) { total_ += (count + 15) / 16 * 16; }
  void start() {
    if (floats_->size() < total_) floats_->resize(total_);
    next_ = floats_->data();
  }
  float* take(std::size_t count) { return std::exchange(next_, next_ + (count + 15) / 16 * 16); }

 private:
  std::vector<float>* floats_;
  std::size_t total_ = 0;
  float* next_ = nullptr;
};

// Everything of one item that its steps share.
struct Item {
  const simd::AttendKernels& kernels;
  const simd::CodingKernels& coding;
  const std::vector<quant::KeyLayout>& keys;      // by level
  const std::vector<quant::ValueLayout>& values;  // by level
  Shift shift;
  float clip;
  int heads;                    // query heads
  std::ptrdiff_t query_stride;  // padded key channels
  std::ptrdiff_t value_stride;  // padded value channels
  std::ptrdiff_t score_stride;
  const float* queries;         // [heads][query_stride], scaled
  const float* stored_queries;  // the same in stored channel order
  float* scores;                // [heads][score_stride]
  float* out;                   // [heads][value_stride], of 16-bit pages
  float* coded_out;             // [heads][value_stride], of coded pages (rotated)
  float* raw;                   // [heads][128]
  std::int8_t* hi;              // [heads][max(query_stride, 128)]
  std::int8_t* lo;
  float* scale;   // [heads]
  float* offset;  // [heads]
};

// Scores of a coded page with scales per channel.
void score_by_channel(const Item& item, const BlockView& keys, float* scores, const std::uint8_t* prefetch) {
  const quant::KeyLayout& layout = item.keys[static_cast<std::size_t>(keys.level)];
  for (int h = 0; h < item.heads; ++h) item.offset[h] = 0.f;
  // Folding comes first for all runs: their offsets together are where the scores start.
  for (std::size_t r = 0; r < layout.runs.size(); ++r) {
    const quant::KeyRun& run = layout.runs[r];
    const std::ptrdiff_t channel = run.first_quad * 4;
    const quant::Width width =
        run.bits == 0 ? quant::Width{0.f, 0.f} : quant::shifted_width(run.bits, item.shift, item.clip);
    simd::FoldKeysArgs fold = {};
    fold.queries = item.stored_queries + channel;
    fold.stride = item.query_stride;
    fold.heads = item.heads;
    fold.channels = run.quads * 4;
    fold.scale = keys.scale + channel;
    fold.min = keys.min + channel;
    fold.multiple = width.multiple;
    fold.center = width.center;
    fold.hi = item.hi + channel;
    fold.lo = kv::key_takes_two_halves(run.bits) ? item.lo + channel : nullptr;
    fold.out_scale = item.scale + static_cast<std::ptrdiff_t>(r) * item.heads;
    fold.offset = item.offset;
    item.kernels.fold_keys(fold);
  }
  for (int h = 0; h < item.heads; ++h) std::fill_n(scores + h * item.score_stride, kTokens, item.offset[h]);
  for (std::size_t r = 0; r < layout.runs.size(); ++r) {
    const quant::KeyRun& run = layout.runs[r];
    if (run.bits == 0) continue;
    const std::ptrdiff_t channel = run.first_quad * 4;
    item.kernels.score_codes({keys.codes + run.offset, run.bits, run.quads, item.hi + channel,
                              kv::key_takes_two_halves(run.bits) ? item.lo + channel : nullptr, item.query_stride,
                              item.heads, item.scale + static_cast<std::ptrdiff_t>(r) * item.heads, scores,
                              item.score_stride, prefetch != nullptr ? prefetch + run.offset : nullptr});
  }
}

// Scores of a coded page with scales per token: score = scale_t * sum q*(code - center) + middle_t * sum q.
void score_by_token(const Item& item, const BlockView& keys, float* scores) {
  // f16 1 and -127.5: with them the middle of the grid is 0 and fold_keys leaves the query as it is.
  constexpr std::uint16_t kOne = 0x3c00, kMinusMiddle = 0xd7f8;
  const quant::KeyLayout& layout = item.keys[static_cast<std::size_t>(keys.level)];
  std::uint16_t ones[kTokens], middles[kTokens];
  std::fill(std::begin(ones), std::end(ones), kOne);
  std::fill(std::begin(middles), std::end(middles), kMinusMiddle);
  float scale[kTokens], min[kTokens];
  for (int h = 0; h < item.heads; ++h) std::fill_n(scores + h * item.score_stride, kTokens, 0.f);
  for (const quant::KeyRun& run : layout.runs) {
    const std::ptrdiff_t channel = run.first_quad * 4;
    const quant::Width width = quant::shifted_width(run.bits, item.shift, item.clip);
    for (int h = 0; h < item.heads; ++h) item.offset[h] = 0.f;
    const bool two = kv::key_takes_two_halves(run.bits);
    item.kernels.fold_keys({item.stored_queries + channel, item.query_stride, item.heads, run.quads * 4, ones, middles,
                            1.f, width.center, item.hi + channel, two ? item.lo + channel : nullptr, item.scale,
                            item.offset});
    for (int h = 0; h < item.heads; ++h)
      std::fill_n(item.raw + static_cast<std::size_t>(h) * kTokens, kTokens, item.offset[h]);
    item.kernels.score_codes({keys.codes + run.offset, run.bits, run.quads, item.hi + channel,
                              two ? item.lo + channel : nullptr, item.query_stride, item.heads, item.scale, item.raw,
                              simd::kPageTokens, nullptr});
    const std::size_t slot = static_cast<std::size_t>(run.group) * kTokens;
    item.coding.f32_from_f16(keys.scale + slot, scale, kTokens);
    item.coding.f32_from_f16(keys.min + slot, min, kTokens);
    for (int h = 0; h < item.heads; ++h) {
      const float* q = item.stored_queries + h * item.query_stride + channel;
      float sum = 0.f;
      for (int c = 0; c < run.quads * 4; ++c) sum += q[c];
      const float* raw = item.raw + static_cast<std::size_t>(h) * kTokens;
      float* to = scores + h * item.score_stride;
      for (std::size_t t = 0; t < kTokens; ++t) {
        to[t] += scale[t] * width.multiple * raw[t] + (min[t] + 127.5f * scale[t]) * sum;
      }
    }
  }
}

void weigh_coded(const Item& item, const BlockView& values, const float* weights, const std::uint8_t* prefetch) {
  const quant::ValueLayout& layout = item.values[static_cast<std::size_t>(values.level)];
  const quant::Width width = quant::shifted_width(layout.bits, item.shift, item.clip);
  const bool two = kv::value_takes_two_halves(layout.bits);
  for (std::size_t g = 0; g < layout.runs.size(); ++g) {
    const quant::ValueRun& run = layout.runs[g];
    for (int h = 0; h < item.heads; ++h) item.offset[h] = 0.f;
    item.kernels.fold_values({weights, item.score_stride, item.heads, values.scale + g * kTokens,
                              values.min + g * kTokens, width.multiple, width.center, item.hi, two ? item.lo : nullptr,
                              item.scale, item.offset});
    float* out = item.coded_out + run.first_channel;
    const std::ptrdiff_t byte = run.first_channel * 4;
    item.kernels.weigh_codes({values.codes + byte, layout.bits, run.channels,
                              static_cast<std::ptrdiff_t>(layout.row_bytes), item.hi, two ? item.lo : nullptr,
                              item.heads, item.scale, out, item.value_stride,
                              prefetch != nullptr ? prefetch + byte : nullptr});
    for (int h = 0; h < item.heads; ++h) {
      for (int c = 0; c < run.channels; ++c) out[h * item.value_stride + c] += item.offset[h];
    }
  }
}

void cap_scores(float* scores, std::size_t n, float cap) {
  for (std::size_t i = 0; i < n; ++i) scores[i] = cap * std::tanh(scores[i] / cap);
}

}  // namespace

void KvCache::Impl::attend_decode(int layer_index, const kv::ActivePart& part, int token, int head, std::int64_t run,
                                  HeadRows queries, std::vector<float>* floats) {
  const LayerGeometry& layer = shape.layers[static_cast<std::size_t>(layer_index)];
  const int stored = shape.stored_of[static_cast<std::size_t>(layer_index)];
  const kv::StoredLayer& store = shape.stored[static_cast<std::size_t>(stored)];
  const Sequence& s = *part.sequence;
  const std::int64_t index = s.committed + token;
  const std::int32_t position = s.positions[static_cast<std::size_t>(index)];
  const int heads = layer.query_heads / layer.kv_heads;
  const auto heads_n = static_cast<std::size_t>(heads);
  const auto padded_key = static_cast<std::size_t>(quant::padded_channels(layer.key_dim));
  const auto padded_value = static_cast<std::size_t>(quant::padded_channels(layer.value_dim));

  // Columns of this run with anything to see.
  const auto first_column = static_cast<std::size_t>(run) * kv::kRunColumns;
  std::size_t end_column = std::min(s.columns.size(), first_column + kv::kRunColumns);
  while (end_column > first_column && kv::visible_tokens(s.columns[end_column - 1], index) == 0) --end_column;
  const std::size_t columns = end_column - first_column;
  const std::size_t sinks_here = run == 0 ? static_cast<std::size_t>(std::min<std::int64_t>(sinks(), index + 1)) : 0;
  const std::size_t scores_n = columns * kTokens + sinks_here;
  const std::size_t score_stride = (scores_n + 15) / 16 * 16;

  const kv::MapSlot* maps = s.maps.get();
  const std::vector<quant::KeyLayout>& key_layouts =
      kv::key_layouts(shape, maps != nullptr && maps->known ? &maps->maps : nullptr, stored, head);
  const std::size_t runs_most = 8 + padded_key / 32;  // key runs of a layout: at most 4 graded ones or one per group
  const std::size_t bytes = heads_n * std::max(padded_key, kTokens);
  Carver carver(floats);
  for (const std::size_t n :
       {heads_n * padded_key, heads_n * padded_key, heads_n * score_stride, heads_n * padded_value,
        heads_n * padded_value, heads_n * kTokens, bytes / 4, bytes / 4, heads_n * runs_most, heads_n}) {
    carver.plan(n + 16);
  }
  carver.start();
  float* scaled = carver.take(heads_n * padded_key);
  float* in_order = carver.take(heads_n * padded_key);
  Item item = {*kernels.attend,
               *kernels.coding,
               key_layouts,
               store.value_layouts,
               options.spec.shift,
               static_cast<float>(options.spec.clip),
               heads,
               static_cast<std::ptrdiff_t>(padded_key),
               static_cast<std::ptrdiff_t>(padded_value),
               static_cast<std::ptrdiff_t>(score_stride),
               scaled,
               key_layouts[0].order.empty() ? scaled : in_order,
               carver.take(heads_n * score_stride),
               carver.take(heads_n * padded_value),
               carver.take(heads_n * padded_value),
               carver.take(heads_n * kTokens),
               reinterpret_cast<std::int8_t*>(carver.take(bytes / 4 + 16)),
               reinterpret_cast<std::int8_t*>(carver.take(bytes / 4 + 16)),
               carver.take(heads_n * runs_most),
               carver.take(heads_n)};
  const std::int64_t row = part.first_row + token;
  for (int h = 0; h < heads; ++h) {
    const float* q = queries.data + row * queries.token_stride + (head * heads + h) * queries.head_stride;
    float* to = scaled + static_cast<std::size_t>(h) * padded_key;
    for (int c = 0; c < layer.key_dim; ++c) to[c] = q[c] * layer.scale;
    for (std::size_t c = static_cast<std::size_t>(layer.key_dim); c < padded_key; ++c) to[c] = 0.f;
    if (key_layouts[0].order.empty()) continue;
    float* sorted = in_order + static_cast<std::size_t>(h) * padded_key;
    for (std::size_t c = 0; c < padded_key; ++c)
      sorted[c] = c < key_layouts[0].order.size() ? to[key_layouts[0].order[c]] : 0.f;
  }
  std::memset(item.out, 0, heads_n * padded_value * sizeof(float));
  std::memset(item.coded_out, 0, heads_n * padded_value * sizeof(float));

  // Scores. Pages that a sliding window left behind are gone; nothing of them is seen.
  const auto page_of = [&](std::size_t column) -> const kv::Page* {
    const kv::PageId id = s.columns[column].pages[static_cast<std::size_t>(store.first_head + head)];
    return id == kv::kNoPage ? nullptr : &storage.page(id);
  };
  for (std::size_t i = 0; i < columns; ++i) {
    const Column& column = s.columns[first_column + i];
    float* scores = item.scores + i * kTokens;
    const int seen = kv::visible_tokens(column, index);
    const int from = kv::first_visible(s, column.first, seen, position, layer.sliding_window);
    const kv::Page* page = page_of(first_column + i);
    if (page == nullptr || from == seen) {
      for (int h = 0; h < heads; ++h) std::fill_n(scores + h * item.score_stride, kTokens, kNever);
      continue;
    }
    const BlockView keys = kv::view_block(storage, shape, *page, kv::kKey);
    if (keys.level == 0) {
      item.kernels.score_f16(
          {keys.numbers(), seen, layer.key_dim, item.queries, item.query_stride, heads, scores, item.score_stride});
    } else if (key_layouts[0].groups > 0) {
      score_by_token(item, keys, scores);
    } else {
      const kv::Page* next = i + 1 < columns ? page_of(first_column + i + 1) : nullptr;
      score_by_channel(item, keys, scores,
                       next != nullptr ? storage.codes(*next, kv::kKey, next->now[kv::kKey]) : nullptr);
    }
    for (int h = 0; h < heads; ++h) {
      float* of_head = scores + h * item.score_stride;
      std::fill(of_head + seen, of_head + kTokens, kNever);
      std::fill(of_head, of_head + from, kNever);
    }
  }
  const std::uint16_t* sink_keys = nullptr;
  const std::uint16_t* sink_values = nullptr;
  if (sinks_here > 0) {
    const auto held = static_cast<std::size_t>(sinks()), at = static_cast<std::size_t>(head) * held;
    const std::uint16_t* block = s.sinks->layers[static_cast<std::size_t>(stored)].data();
    sink_keys = block + at * static_cast<std::size_t>(layer.key_dim);
    sink_values = block + static_cast<std::size_t>(layer.kv_heads) * held * static_cast<std::size_t>(layer.key_dim) +
                  at * static_cast<std::size_t>(layer.value_dim);
    float* scores = item.scores + columns * kTokens;
    const int seen = static_cast<int>(sinks_here);
    item.kernels.score_f16(
        {sink_keys, seen, layer.key_dim, item.queries, item.query_stride, heads, scores, item.score_stride});
    const int from = kv::first_visible(s, 0, seen, position, layer.sliding_window);
    for (int h = 0; h < heads; ++h) std::fill_n(scores + h * item.score_stride, from, kNever);
  }

  float* results[64];
  for (int h = 0; h < heads; ++h) {
    float* result = partial(part, layer, token, head * heads + h, run);
    if (h < 64) results[h] = result;
    float* scores = item.scores + h * item.score_stride;
    if (layer.logit_softcap > 0.f) cap_scores(scores, scores_n, layer.logit_softcap);
    const float top = item.kernels.max(scores, scores_n);
    result[layer.value_dim] = top;
    if (top == kNever) {
      std::fill_n(scores, scores_n, 0.f);
      result[layer.value_dim + 1] = 0.f;
    } else {
      result[layer.value_dim + 1] = item.kernels.exp_sum(scores, scores_n, top);
    }
  }

  for (std::size_t i = 0; i < columns; ++i) {
    const Column& column = s.columns[first_column + i];
    const kv::Page* page = page_of(first_column + i);
    const int seen = kv::visible_tokens(column, index);
    if (page == nullptr || kv::first_visible(s, column.first, seen, position, layer.sliding_window) == seen) continue;
    const BlockView values = kv::view_block(storage, shape, *page, kv::kValue);
    const float* weights = item.scores + i * kTokens;
    if (values.level == 0) {
      item.kernels.weigh_f16(
          {values.numbers(), seen, layer.value_dim, weights, item.score_stride, heads, item.out, item.value_stride});
    } else {
      const kv::Page* next = i + 1 < columns ? page_of(first_column + i + 1) : nullptr;
      weigh_coded(item, values, weights,
                  next != nullptr ? storage.codes(*next, kv::kValue, next->now[kv::kValue]) : nullptr);
    }
  }
  if (sinks_here > 0) {
    item.kernels.weigh_f16({sink_values, static_cast<int>(sinks_here), layer.value_dim, item.scores + columns * kTokens,
                            item.score_stride, heads, item.out, item.value_stride});
  }
  const int rotated = store.value_layouts[0].rotated;
  for (int first = 0; rotated > 0 && first < layer.value_dim; first += rotated) {
    item.coding.rotate_rows(item.coded_out + first, heads, item.value_stride, rotated);
  }
  for (int h = 0; h < heads; ++h) {
    float* result = h < 64 ? results[h] : partial(part, layer, token, head * heads + h, run);
    for (int c = 0; c < layer.value_dim; ++c) {
      result[c] = item.out[h * item.value_stride + c] + item.coded_out[h * item.value_stride + c];
    }
  }
}

}  // namespace neve
