// The definition of the decode-attention kernels: one value at a time. Every ISA is tested against this file.
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

// Code of `lane` (of a token or a token group) in a byte that it shares with the lanes `lanes_per_part` apart.
int code_at(std::uint8_t byte, int part, int bits) { return (byte >> (part * bits)) & ((1 << bits) - 1); }

void score_codes(const ScoreArgs& a) {
  const int tokens_per_part = kPageTokens * a.bits / 8;
  for (int head = 0; head < a.heads; ++head) {
    const std::int8_t* hi = a.hi + head * a.query_stride;
    const std::int8_t* lo = a.lo != nullptr ? a.lo + head * a.query_stride : nullptr;
    float* scores = a.scores + head * a.score_stride;
    for (int token = 0; token < kPageTokens; ++token) {
      const int part = token / tokens_per_part, row = token % tokens_per_part;
      std::int32_t sum_hi = 0, sum_lo = 0;
      for (int quad = 0; quad < a.quads; ++quad) {
        const std::uint8_t* bytes = a.codes + static_cast<std::ptrdiff_t>(quad) * 64 * a.bits + row * 4;
        for (int k = 0; k < 4; ++k) {
          const int code = code_at(bytes[k], part, a.bits);
          sum_hi += code * hi[quad * 4 + k];
          if (lo != nullptr) sum_lo += code * lo[quad * 4 + k];
        }
      }
      const float dot = lo != nullptr ? std::fma(static_cast<float>(sum_hi), 128.f, static_cast<float>(sum_lo))
                                      : static_cast<float>(sum_hi);
      scores[token] = std::fma(dot, a.scale[head], scores[token]);
    }
  }
}

void weigh_codes(const WeighArgs& a) {
  const int groups_per_part = kPageTokens / 4 * a.bits / 8;
  for (int head = 0; head < a.heads; ++head) {
    const std::int8_t* hi = a.hi + head * kPageTokens;
    const std::int8_t* lo = a.lo != nullptr ? a.lo + head * kPageTokens : nullptr;
    float* out = a.out + head * a.out_stride;
    for (int channel = 0; channel < a.channels; ++channel) {
      std::int32_t sum_hi = 0, sum_lo = 0;
      for (int token = 0; token < kPageTokens; ++token) {
        const int part = token / 4 / groups_per_part, row = token / 4 % groups_per_part;
        const int code = code_at(a.codes[row * a.row_bytes + channel * 4 + token % 4], part, a.bits);
        sum_hi += code * hi[token];
        if (lo != nullptr) sum_lo += code * lo[token];
      }
      const float dot = lo != nullptr ? std::fma(static_cast<float>(sum_hi), 128.f, static_cast<float>(sum_lo))
                                      : static_cast<float>(sum_hi);
      out[channel] = std::fma(dot, a.scale[head], out[channel]);
    }
  }
}

// Quantises t[0..n) (already folded) into halves; returns the scale, and the sum of the integers in `sum`.
float quantize(const float* t, int n, std::int8_t* hi, std::int8_t* lo, std::int32_t* sum) {
  float largest = 0.f;
  for (int i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(t[i]));
  const float limit = lo != nullptr ? 16000.f : 127.f;
  const float inverse = largest >= kLeastFolded ? limit / largest : 0.f;
  *sum = 0;
  for (int i = 0; i < n; ++i) {
    const float scaled = t[i] * inverse;
    const int x = std::isfinite(scaled) ? static_cast<int>(std::nearbyint(scaled)) : 0;
    *sum += x;
    if (lo != nullptr) {
      const int high = (x + 64) >> 7;
      hi[i] = static_cast<std::int8_t>(high);
      lo[i] = static_cast<std::int8_t>(x - high * 128);
    } else {
      hi[i] = static_cast<std::int8_t>(x);
    }
  }
  return largest / limit;
}

// The two folds differ in their names only: `x` stands for queries or weights, n for channels or tokens.
void fold(const float* x, int n, const std::uint16_t* scale, const std::uint16_t* min, float multiple, float center,
          std::int8_t* hi, std::int8_t* lo, float* out_scale, float* offset) {
  float t[1024];
  float middle = 0.f;
  for (int i = 0; i < n; ++i) {
    const float s = f32_from_f16(scale[i]);
    middle += x[i] * (f32_from_f16(min[i]) + 127.5f * s);
    t[i] = x[i] * (s * multiple);
  }
  std::int32_t sum = 0;
  *out_scale = quantize(t, n, hi, lo, &sum);
  *offset += middle - *out_scale * center * static_cast<float>(sum);
}

void fold_keys(const FoldKeysArgs& a) {
  for (int head = 0; head < a.heads; ++head) {
    const std::ptrdiff_t at = head * a.stride;
    fold(a.queries + at, a.channels, a.scale, a.min, a.multiple, a.center, a.hi + at,
         a.lo != nullptr ? a.lo + at : nullptr, a.out_scale + head, a.offset + head);
  }
}

void fold_values(const FoldValuesArgs& a) {
  for (int head = 0; head < a.heads; ++head) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(head) * kPageTokens;
    fold(a.weights + head * a.stride, kPageTokens, a.scale, a.min, a.multiple, a.center, a.hi + at,
         a.lo != nullptr ? a.lo + at : nullptr, a.out_scale + head, a.offset + head);
  }
}

void score_f16(const ScoreF16Args& a) {
  for (int head = 0; head < a.heads; ++head) {
    for (int token = 0; token < a.tokens; ++token) {
      float sum = 0.f;
      for (int c = 0; c < a.dim; ++c) {
        sum +=
            a.queries[head * a.query_stride + c] * f32_from_f16(a.keys[static_cast<std::ptrdiff_t>(token) * a.dim + c]);
      }
      a.scores[head * a.score_stride + token] = sum;
    }
  }
}

void weigh_f16(const WeighF16Args& a) {
  for (int head = 0; head < a.heads; ++head) {
    for (int token = 0; token < a.tokens; ++token) {
      const float weight = a.weights[head * a.weight_stride + token];
      for (int c = 0; c < a.dim; ++c) {
        a.out[head * a.out_stride + c] +=
            weight * f32_from_f16(a.values[static_cast<std::ptrdiff_t>(token) * a.dim + c]);
      }
    }
  }
}

float max(const float* x, std::size_t n) {
  float top = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

float exp_sum(float* x, std::size_t n, float top) {
  float sum = 0.f;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - top);
    sum += x[i];
  }
  return sum;
}

}  // namespace

const AttendKernels kAttendScalar = {score_codes, weigh_codes, fold_keys, fold_values,
                                     score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
