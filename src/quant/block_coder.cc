#include "quant/block_coder.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"

namespace neve::quant {
namespace {

constexpr std::size_t kTokens = kPageTokens;

bool is_finite(std::uint16_t half) { return (half & 0x7c00u) != 0x7c00u; }

// First element of [tokens][channels] that is not finite.
NotFinite find_not_finite(const std::uint16_t* x, int tokens, int channels) {
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < channels; ++c) {
      if (!is_finite(x[static_cast<std::ptrdiff_t>(t) * channels + c])) return {t, c};
    }
  }
  return {};
}

// words[i] = a[i] | b[i] << 8 | c[i] << 16 | d[i] << 24: four rows of codes as dot-product words.
void interleave(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c, const std::uint8_t* d,
                std::size_t n, std::uint8_t* words) {
  for (std::size_t i = 0; i < n; ++i) {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
}

// Grids of n groups with ranges low..high, as stored and as f32. Returns the first that is beyond f16 (a rotated
// extreme), n if there is none.
std::size_t make_grids(const float* low, const float* high, std::size_t n, std::uint16_t* scale, std::uint16_t* min,
                       float* scale_f32, float* min_f32) {
  std::size_t bad = n;
  for (std::size_t i = 0; i < n; ++i) {
    const Grid grid = make_grid(low[i], high[i]);
    scale[i] = grid.scale;
    min[i] = grid.min;
    scale_f32[i] = f32_from_f16(grid.scale);
    min_f32[i] = f32_from_f16(grid.min);
    if (bad == n && !(is_finite(grid.scale) && is_finite(grid.min))) bad = i;
  }
  return bad;
}

// Sum of one channel's codes (`channel` of the quad) over the first `tokens` tokens.
std::int32_t sum_codes(const std::uint8_t* quad, int bits, int channel, int tokens) {
  const int rows = kPageTokens * bits / 8;
  const unsigned mask = (1u << bits) - 1u;
  std::int32_t sum = 0;
  for (int t = 0; t < tokens; ++t) {
    const unsigned byte = quad[(t % rows) * 4 + channel];
    sum += static_cast<std::int32_t>((byte >> (t / rows * bits)) & mask);
  }
  return sum;
}

}  // namespace

BlockCoder::BlockCoder(const simd::Kernels& kernels, int most_channels) : kernels_(kernels) {
  const auto padded = static_cast<std::size_t>(padded_channels(most_channels));
  tile_.resize(padded * kTokens);
  codes_.resize(padded * kTokens);
  low_.resize(2 * std::max(padded, kTokens));
  high_.resize(2 * std::max(padded, kTokens));
}

bool BlockCoder::load(const std::uint16_t* numbers, int tokens, int channels, NotFinite* where) {
  if (!all_finite(numbers, static_cast<std::size_t>(tokens) * static_cast<std::size_t>(channels))) {
    *where = find_not_finite(numbers, tokens, channels);
    return false;
  }
  // Channel-major, so that rotating and quantising go over tokens side by side whatever the head size is.
  kernels_.tile->transpose_f16(numbers, tokens, channels, tile_.data(), tokens);
  std::fill_n(codes_.begin(), static_cast<std::size_t>(padded_channels(channels)) * kTokens, std::uint8_t{0});
  return true;
}

CodeResult BlockCoder::code_channels(const KeyLayout& layout, int tokens, BlockScales scales, NotFinite* where) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  const auto padded = static_cast<std::size_t>(padded_channels(layout.channels));
  float* scale = low_.data() + std::max(padded, kTokens);
  float* min = high_.data() + std::max(padded, kTokens);
  const auto channel_of = [&](std::size_t i) { return layout.order.empty() ? i : std::size_t{layout.order[i]}; };
  const auto row = [&](std::size_t i) { return tile_.data() + channel_of(i) * static_cast<std::size_t>(tokens); };
  std::fill(low_.begin(), low_.begin() + static_cast<std::ptrdiff_t>(padded), 0.f);
  std::fill(high_.begin(), high_.begin() + static_cast<std::ptrdiff_t>(padded), 0.f);
  for (std::size_t i = 0; i < channels; ++i) kernels_.coding->row_range(row(i), 1, tokens, &low_[i], &high_[i]);
  const std::size_t bad = make_grids(low_.data(), high_.data(), padded, scales.scale, scales.min, scale, min);
  if (bad < padded) {
    *where = {0, static_cast<int>(channel_of(bad))};
    return CodeResult::kNotFinite;
  }
  for (std::size_t i = 0; i < channels; ++i) {
    kernels_.coding->quantize_rows(row(i), 1, tokens, scale + i, min + i, codes_.data() + i * kTokens);
  }
  return CodeResult::kDone;
}

CodeResult BlockCoder::code_tokens(int first_channel, int channels, int tokens, BlockScales scales, NotFinite* where) {
  const auto n = static_cast<std::size_t>(tokens);
  float* scale = low_.data() + low_.size() / 2;
  float* min = high_.data() + high_.size() / 2;
  std::fill_n(scales.scale, kTokens, std::uint16_t{0});
  std::fill_n(scales.min, kTokens, std::uint16_t{0});
  const float* rows = tile_.data() + static_cast<std::size_t>(first_channel) * n;
  kernels_.coding->column_range(rows, channels, tokens, low_.data(), high_.data());
  const std::size_t bad = make_grids(low_.data(), high_.data(), n, scales.scale, scales.min, scale, min);
  if (bad < n) {
    *where = {static_cast<int>(bad), first_channel};
    return CodeResult::kNotFinite;
  }
  for (int c = 0; c < channels; ++c) {
    kernels_.coding->quantize_columns(rows + static_cast<std::size_t>(c) * n, 1, tokens, scale, min,
                                      codes_.data() + static_cast<std::size_t>(first_channel + c) * kTokens);
  }
  return CodeResult::kDone;
}

CodeResult BlockCoder::code_keys(const std::uint16_t* keys, int tokens, const KeyLayout& layout, std::uint8_t* codes,
                                 BlockScales scales, NotFinite* where) {
  if (!load(keys, tokens, layout.channels, where)) return CodeResult::kNotFinite;
  CodeResult result = CodeResult::kDone;
  if (layout.groups == 0) result = code_channels(layout, tokens, scales, where);
  for (std::size_t r = 0; layout.groups > 0 && r < layout.runs.size() && result == CodeResult::kDone; ++r) {
    const KeyRun& run = layout.runs[r];
    const int first = run.first_quad * 4;
    const std::size_t slot = static_cast<std::size_t>(run.group) * kTokens;
    result = code_tokens(first, std::min(run.quads * 4, layout.channels - first), tokens,
                         {scales.scale + slot, scales.min + slot}, where);
  }
  if (result != CodeResult::kDone) return result;
  const auto padded = static_cast<std::size_t>(padded_channels(layout.channels));
  for (std::size_t quad = 0; quad < padded / 4; ++quad) {
    const std::uint8_t* from = codes_.data() + quad * 4 * kTokens;
    interleave(from, from + kTokens, from + 2 * kTokens, from + 3 * kTokens, kTokens, codes + quad * 4 * kTokens);
  }
  return CodeResult::kDone;
}

CodeResult BlockCoder::code_values(const std::uint16_t* values, int tokens, const ValueLayout& layout,
                                   std::uint8_t* codes, BlockScales scales, NotFinite* where) {
  if (!load(values, tokens, layout.channels, where)) return CodeResult::kNotFinite;
  for (int first = 0; layout.rotated > 0 && first < layout.channels; first += layout.rotated) {
    kernels_.coding->rotate_columns(tile_.data() + static_cast<std::ptrdiff_t>(first) * tokens, layout.rotated, tokens,
                                    tokens);
  }
  for (std::size_t group = 0; group < layout.runs.size(); ++group) {
    const ValueRun& run = layout.runs[group];
    const int width = std::min(run.channels, layout.channels - run.first_channel);
    const CodeResult result = code_tokens(run.first_channel, width, tokens,
                                          {scales.scale + group * kTokens, scales.min + group * kTokens}, where);
    if (result != CodeResult::kDone) return result;
  }
  // Four tokens of a channel are a word already: [channels][32 words] becomes [32][channels].
  const auto padded = static_cast<std::size_t>(padded_channels(layout.channels));
  for (std::size_t c = 0; c < padded; ++c) {
    const std::uint8_t* from = codes_.data() + c * kTokens;
    for (std::size_t word = 0; word < kTokens / 4; ++word)
      std::memcpy(codes + (word * padded + c) * 4, from + word * 4, 4);
  }
  return CodeResult::kDone;
}

void BlockCoder::narrow_keys(const KeyLayout& from, const std::uint8_t* from_codes, const KeyLayout& to,
                             std::uint8_t* to_codes, int tokens, Shift shift, float clip, BlockScales scales) {
  const simd::NarrowRule rule = narrow_rule(shift, clip);
  const simd::CodingKernels& coding = *kernels_.coding;
  std::uint8_t nibbles[256];
  std::size_t run = 0;
  for (const KeyRun& target : to.runs) {
    for (int q = 0; q < target.quads; ++q) {
      const int quad = target.first_quad + q;
      while (quad >= from.runs[run].first_quad + from.runs[run].quads) ++run;
      const KeyRun& source = from.runs[run];
      const std::uint8_t* in =
          from_codes + source.offset + static_cast<std::size_t>((quad - source.first_quad) * 64 * source.bits);
      std::uint8_t* out = to_codes + target.offset + static_cast<std::size_t>(q * 64 * target.bits);
      if (source.bits == 0) continue;  // dropped before: it has no codes, perhaps the block has none
      if (target.bits == source.bits) {
        std::memcpy(out, in, static_cast<std::size_t>(64 * target.bits));
      } else if (target.bits == 4) {
        coding.narrow_8_to_4(in, 256, rule, out);
      } else if (target.bits == 2) {
        if (source.bits == 8) {
          coding.narrow_8_to_4(in, 256, rule, nibbles);
          in = nibbles;
        }
        coding.narrow_4_to_2(in, 128, rule, out);
      } else {
        const Width width = shifted_width(source.bits, shift, clip);
        for (int k = 0; k < 4; ++k) {
          const auto at = static_cast<std::size_t>(4 * quad + k);
          const float scale = f32_from_f16(scales.scale[at]);
          const float mean = static_cast<float>(sum_codes(in, source.bits, k, tokens)) / static_cast<float>(tokens);
          const float middle = f32_from_f16(scales.min[at]) + 127.5f * scale;
          scales.min[at] = f16_from_f32(middle + width.multiple * scale * (mean - width.center));
          scales.scale[at] = 0;
        }
      }
    }
  }
}

void BlockCoder::narrow_values(const ValueLayout& from, const std::uint8_t* from_codes, const ValueLayout& to,
                               std::uint8_t* to_codes, Shift shift, float clip) {
  const simd::NarrowRule rule = narrow_rule(shift, clip);
  const simd::CodingKernels& coding = *kernels_.coding;
  if (from.bits == to.bits) {
    std::memcpy(to_codes, from_codes, to.code_bytes);
  } else if (from.bits == 8 && to.bits == 4) {
    coding.narrow_8_to_4(from_codes, to.code_bytes, rule, to_codes);
  } else if (from.bits == 4 && to.bits == 2) {
    coding.narrow_4_to_2(from_codes, to.code_bytes, rule, to_codes);
  } else {
    std::vector<std::uint8_t> nibbles(to.code_bytes * 2);
    coding.narrow_8_to_4(from_codes, nibbles.size(), rule, nibbles.data());
    coding.narrow_4_to_2(nibbles.data(), to.code_bytes, rule, to_codes);
  }
}

}  // namespace neve::quant
