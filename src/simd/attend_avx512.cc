// Decode-attention kernels for AVX-512 with VNNI: one `vpdpbusd` multiplies 64 codes with a broadcast quad.
//
// Blocking: as many accumulators as the 32 registers bear (24), because the dot has a latency of five and two ports.
// Codes are loaded and split once per block of heads.
#include <immintrin.h>

#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

// Parts of a 64-byte load of `Bits`-wide codes as bytes: part p holds the codes of lane p.
template <int Bits>
struct Parts {
  static constexpr int kCount = 8 / Bits;
  __m512i part[kCount];
  explicit Parts(__m512i x) {
    if constexpr (Bits == 8) {
      part[0] = x;
    } else if constexpr (Bits == 4) {
      const __m512i mask = _mm512_set1_epi8(15);
      part[0] = _mm512_and_si512(x, mask);
      part[1] = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
    } else {
      const __m512i mask = _mm512_set1_epi8(3);
      part[0] = _mm512_and_si512(x, mask);
      part[1] = _mm512_and_si512(_mm512_srli_epi16(x, 2), mask);
      part[2] = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
      part[3] = _mm512_and_si512(_mm512_srli_epi16(x, 6), mask);
    }
  }
};

inline __m512i broadcast_quad(const std::int8_t* x) {
  int word;
  __builtin_memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}

inline __m512 join_halves(__m512i hi, __m512i lo) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(hi), _mm512_set1_ps(128.f), _mm512_cvtepi32_ps(lo));
}

// Scores of `Heads` heads for 16 * Chunks * (8 / Bits) tokens: those of chunks [chunk, chunk + Chunks) of each quad.
template <int Bits, int Heads, int Chunks, bool Two>
void score_block(const ScoreArgs& a, int first_head, int chunk) {
  constexpr int kParts = 8 / Bits, kHalves = Two ? 2 : 1;
  __m512i sum[kHalves][Heads][Chunks][kParts];
  for (auto& half : sum) {
    for (auto& head : half) {
      for (auto& c : head) {
        for (auto& s : c) s = _mm512_setzero_si512();
      }
    }
  }
  const std::uint8_t* codes = a.codes + chunk * 64;
  const std::int8_t* hi = a.hi + first_head * a.query_stride;
  const std::int8_t* lo = Two ? a.lo + first_head * a.query_stride : nullptr;
  const std::uint8_t* next = first_head == 0 && a.prefetch != nullptr ? a.prefetch + chunk * 64 : nullptr;
  for (int quad = 0; quad < a.quads; ++quad) {
    __m512i q_hi[Heads], q_lo[Heads];
    for (int h = 0; h < Heads; ++h) {
      q_hi[h] = broadcast_quad(hi + h * a.query_stride + quad * 4);
      if constexpr (Two) q_lo[h] = broadcast_quad(lo + h * a.query_stride + quad * 4);
    }
#pragma GCC unroll 8
    for (int c = 0; c < Chunks; ++c) {
      const Parts<Bits> x(_mm512_loadu_si512(codes + quad * 64 * Bits + c * 64));
      if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next + quad * 64 * Bits + c * 64), _MM_HINT_T0);
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) {
          sum[0][h][c][p] = _mm512_dpbusd_epi32(sum[0][h][c][p], x.part[p], q_hi[h]);
          if constexpr (Two) sum[1][h][c][p] = _mm512_dpbusd_epi32(sum[1][h][c][p], x.part[p], q_lo[h]);
        }
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    const __m512 scale = _mm512_set1_ps(a.scale[first_head + h]);
    float* scores = a.scores + (first_head + h) * a.score_stride;
    for (int c = 0; c < Chunks; ++c) {
      for (int p = 0; p < kParts; ++p) {
        float* at = scores + p * (kPageTokens / kParts) + (chunk + c) * 16;
        const __m512 dot =
            Two ? join_halves(sum[0][h][c][p], sum[kHalves - 1][h][c][p]) : _mm512_cvtepi32_ps(sum[0][h][c][p]);
        _mm512_storeu_ps(at, _mm512_fmadd_ps(dot, scale, _mm512_loadu_ps(at)));
      }
    }
  }
}

// Chunks of a quad that fit into 24 accumulators, a divisor of Bits (a quad has Bits chunks).
template <int Bits, int Heads, bool Two>
constexpr int chunks_per_block() {
  int chunks = Bits;
  while (chunks > 1 && chunks * Heads * (8 / Bits) * (Two ? 2 : 1) > 24) chunks /= 2;
  return chunks;
}

template <int Bits, int Heads, bool Two>
void score_heads(const ScoreArgs& a, int first_head) {
  constexpr int kChunks = chunks_per_block<Bits, Heads, Two>();
  for (int chunk = 0; chunk < Bits; chunk += kChunks) score_block<Bits, Heads, kChunks, Two>(a, first_head, chunk);
}

// Value channels [channel, channel + 16 * Chunks) for `Heads` heads; the last chunk may be masked.
template <int Bits, int Heads, int Chunks, bool Two>
void weigh_block(const WeighArgs& a, int first_head, int channel) {
  constexpr int kParts = 8 / Bits, kHalves = Two ? 2 : 1, kRows = kPageTokens / 4 / kParts;
  __m512i sum[kHalves][Heads][Chunks];
  for (auto& half : sum) {
    for (auto& head : half) {
      for (auto& s : head) s = _mm512_setzero_si512();
    }
  }
  const int left = a.channels - channel - 16 * (Chunks - 1);
  const __mmask16 tail = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u);
  const std::int8_t* hi = a.hi + first_head * kPageTokens;
  const std::int8_t* lo = Two ? a.lo + first_head * kPageTokens : nullptr;
  const std::ptrdiff_t offset = channel * 4;
  const std::uint8_t* next = first_head == 0 && a.prefetch != nullptr ? a.prefetch + offset : nullptr;
  for (int row = 0; row < kRows; ++row) {
    const std::uint8_t* codes = a.codes + row * a.row_bytes + offset;
    __m512i part[Chunks][kParts];
#pragma GCC unroll 8
    for (int c = 0; c < Chunks; ++c) {
      const Parts<Bits> x(c + 1 < Chunks ? _mm512_loadu_si512(codes + c * 64)
                                         : _mm512_maskz_loadu_epi32(tail, codes + c * 64));
      for (int p = 0; p < kParts; ++p) part[c][p] = x.part[p];
      if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next + row * a.row_bytes + c * 64), _MM_HINT_T0);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) {
        const std::ptrdiff_t at = h * kPageTokens + (p * kRows + row) * 4;
        const __m512i w_hi = broadcast_quad(hi + at);
#pragma GCC unroll 8
        for (int c = 0; c < Chunks; ++c) sum[0][h][c] = _mm512_dpbusd_epi32(sum[0][h][c], part[c][p], w_hi);
        if constexpr (Two) {
          const __m512i w_lo = broadcast_quad(lo + at);
#pragma GCC unroll 8
          for (int c = 0; c < Chunks; ++c) sum[1][h][c] = _mm512_dpbusd_epi32(sum[1][h][c], part[c][p], w_lo);
        }
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    const __m512 scale = _mm512_set1_ps(a.scale[first_head + h]);
    float* out = a.out + (first_head + h) * a.out_stride + channel;
    for (int c = 0; c < Chunks; ++c) {
      const __m512 dot = Two ? join_halves(sum[0][h][c], sum[kHalves - 1][h][c]) : _mm512_cvtepi32_ps(sum[0][h][c]);
      const __mmask16 mask = c + 1 < Chunks ? static_cast<__mmask16>(0xffff) : tail;
      _mm512_mask_storeu_ps(out + c * 16, mask,
                            _mm512_fmadd_ps(dot, scale, _mm512_maskz_loadu_ps(mask, out + c * 16)));
    }
  }
}

template <int Bits, int Heads, bool Two>
void weigh_heads(const WeighArgs& a, int first_head) {
  // Besides the sums, the parts of a row live in registers: fewer chunks for narrow codes.
  constexpr int kSums = Heads * (Two ? 2 : 1);
  constexpr int kChunks = kSums * 4 + 4 * (8 / Bits) <= 30 ? 4 : kSums * 2 + 2 * (8 / Bits) <= 30 ? 2 : 1;
  int channel = 0;
  for (; channel + 16 * (kChunks - 1) < a.channels; channel += 16 * kChunks) {
    weigh_block<Bits, Heads, kChunks, Two>(a, first_head, channel);
  }
  for (; channel < a.channels; channel += 16) weigh_block<Bits, Heads, 1, Two>(a, first_head, channel);
}

template <int Bits, bool Two>
void score_codes_of(const ScoreArgs& a) {
  int head = 0;
  while (a.heads - head >= 4) score_heads<Bits, 4, Two>(a, head), head += 4;
  if (a.heads - head == 3) score_heads<Bits, 3, Two>(a, head);
  if (a.heads - head == 2) score_heads<Bits, 2, Two>(a, head);
  if (a.heads - head == 1) score_heads<Bits, 1, Two>(a, head);
}

template <int Bits, bool Two>
void weigh_codes_of(const WeighArgs& a) {
  int head = 0;
  while (a.heads - head >= 4) weigh_heads<Bits, 4, Two>(a, head), head += 4;
  if (a.heads - head == 3) weigh_heads<Bits, 3, Two>(a, head);
  if (a.heads - head == 2) weigh_heads<Bits, 2, Two>(a, head);
  if (a.heads - head == 1) weigh_heads<Bits, 1, Two>(a, head);
}

void score_codes(const ScoreArgs& a) {
  const bool two = a.lo != nullptr;
  if (a.bits == 8) return two ? score_codes_of<8, true>(a) : score_codes_of<8, false>(a);
  if (a.bits == 4) return two ? score_codes_of<4, true>(a) : score_codes_of<4, false>(a);
  return two ? score_codes_of<2, true>(a) : score_codes_of<2, false>(a);
}

void weigh_codes(const WeighArgs& a) {
  const bool two = a.lo != nullptr;
  if (a.bits == 8) return two ? weigh_codes_of<8, true>(a) : weigh_codes_of<8, false>(a);
  if (a.bits == 4) return two ? weigh_codes_of<4, true>(a) : weigh_codes_of<4, false>(a);
  return two ? weigh_codes_of<2, true>(a) : weigh_codes_of<2, false>(a);
}

inline __mmask16 mask_of(int left) { return static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u); }

inline __m512 load_f16(const std::uint16_t* x, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, x));
}

// Quantises n folded numbers (masked tails) to halves; returns the sum of the integers.
inline std::int32_t quantize(const float* t, int n, float inverse, std::int8_t* hi, std::int8_t* lo) {
  const __m512 factor = _mm512_set1_ps(inverse);
  __m512i total = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16) {
    const __mmask16 mask = mask_of(n - i);
    const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, t + i), factor));
    total = _mm512_add_epi32(total, x);
    if (lo != nullptr) {
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(64)), 7);
      _mm512_mask_cvtepi32_storeu_epi8(hi + i, mask, high);
      _mm512_mask_cvtepi32_storeu_epi8(lo + i, mask, _mm512_sub_epi32(x, _mm512_slli_epi32(high, 7)));
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(hi + i, mask, x);
    }
  }
  return _mm512_reduce_add_epi32(total);
}

void fold(const float* x, std::ptrdiff_t x_stride, int heads, int n, const std::uint16_t* scale,
          const std::uint16_t* min, float multiple, float center, std::int8_t* hi, std::int8_t* lo,
          std::ptrdiff_t half_stride, float* out_scale, float* offset) {
  alignas(64) float scales[1024], middles[1024], t[1024];
  for (int i = 0; i < n; i += 16) {
    const __mmask16 mask = mask_of(n - i);
    const __m512 s = load_f16(scale + i, mask);
    _mm512_store_ps(middles + i, _mm512_fmadd_ps(s, _mm512_set1_ps(127.5f), load_f16(min + i, mask)));
    _mm512_store_ps(scales + i, _mm512_mul_ps(s, _mm512_set1_ps(multiple)));
  }
  const float limit = lo != nullptr ? 16000.f : 127.f;
  for (int head = 0; head < heads; ++head) {
    const float* row = x + head * x_stride;
    __m512 largest = _mm512_setzero_ps(), middle = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
      const __m512 q = _mm512_maskz_loadu_ps(mask_of(n - i), row + i);
      const __m512 folded = _mm512_mul_ps(q, _mm512_load_ps(scales + i));
      _mm512_store_ps(t + i, folded);
      largest = _mm512_max_ps(largest, _mm512_abs_ps(folded));
      middle = _mm512_fmadd_ps(q, _mm512_load_ps(middles + i), middle);
    }
    const float top = _mm512_reduce_max_ps(largest);
    const float inverse = top > 0.f ? limit / top : 0.f;
    std::int8_t* low = lo != nullptr ? lo + head * half_stride : nullptr;
    const std::int32_t sum = quantize(t, n, inverse, hi + head * half_stride, low);
    out_scale[head] = top / limit;
    offset[head] += _mm512_reduce_add_ps(middle) - out_scale[head] * center * static_cast<float>(sum);
  }
}

void fold_keys(const FoldKeysArgs& a) {
  fold(a.queries, a.stride, a.heads, a.channels, a.scale, a.min, a.multiple, a.center, a.hi, a.lo, a.stride,
       a.out_scale, a.offset);
}

void fold_values(const FoldValuesArgs& a) {
  fold(a.weights, a.stride, a.heads, kPageTokens, a.scale, a.min, a.multiple, a.center, a.hi, a.lo, kPageTokens,
       a.out_scale, a.offset);
}

// Scores of up to four heads for one key row at a time; four rows share the horizontal sums.
template <int Heads>
void score_f16_heads(const ScoreF16Args& a, int first_head) {
  const float* queries = a.queries + first_head * a.query_stride;
  for (int token = 0; token < a.tokens; ++token) {
    const std::uint16_t* key = a.keys + static_cast<std::ptrdiff_t>(token) * a.dim;
    __m512 sum[Heads];
    for (auto& s : sum) s = _mm512_setzero_ps();
    for (int c = 0; c < a.dim; c += 16) {
      const __mmask16 mask = mask_of(a.dim - c);
      const __m512 k = load_f16(key + c, mask);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) {
        sum[h] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, queries + h * a.query_stride + c), k, sum[h]);
      }
    }
    for (int h = 0; h < Heads; ++h) a.scores[(first_head + h) * a.score_stride + token] = _mm512_reduce_add_ps(sum[h]);
  }
}

void score_f16(const ScoreF16Args& a) {
  int head = 0;
  for (; a.heads - head >= 4; head += 4) score_f16_heads<4>(a, head);
  if (a.heads - head == 3) score_f16_heads<3>(a, head);
  if (a.heads - head == 2) score_f16_heads<2>(a, head);
  if (a.heads - head == 1) score_f16_heads<1>(a, head);
}

// 16 * Chunks channels of `Heads` heads over all tokens.
template <int Heads, int Chunks>
void weigh_f16_block(const WeighF16Args& a, int first_head, int channel) {
  __m512 sum[Heads][Chunks];
  const __mmask16 tail = mask_of(a.dim - channel - 16 * (Chunks - 1));
  const auto mask = [&](int c) { return c + 1 < Chunks ? static_cast<__mmask16>(0xffff) : tail; };
  for (int h = 0; h < Heads; ++h) {
    for (int c = 0; c < Chunks; ++c) {
      sum[h][c] = _mm512_maskz_loadu_ps(mask(c), a.out + (first_head + h) * a.out_stride + channel + c * 16);
    }
  }
  for (int token = 0; token < a.tokens; ++token) {
    const std::uint16_t* value = a.values + static_cast<std::ptrdiff_t>(token) * a.dim + channel;
    __m512 v[Chunks];
    for (int c = 0; c < Chunks; ++c) v[c] = load_f16(value + c * 16, mask(c));
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) {
      const __m512 w = _mm512_set1_ps(a.weights[(first_head + h) * a.weight_stride + token]);
#pragma GCC unroll 4
      for (int c = 0; c < Chunks; ++c) sum[h][c] = _mm512_fmadd_ps(w, v[c], sum[h][c]);
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int c = 0; c < Chunks; ++c) {
      _mm512_mask_storeu_ps(a.out + (first_head + h) * a.out_stride + channel + c * 16, mask(c), sum[h][c]);
    }
  }
}

template <int Heads>
void weigh_f16_heads(const WeighF16Args& a, int first_head) {
  int channel = 0;
  for (; a.dim - channel > 48; channel += 64) weigh_f16_block<Heads, 4>(a, first_head, channel);
  for (; channel < a.dim; channel += 16) weigh_f16_block<Heads, 1>(a, first_head, channel);
}

void weigh_f16(const WeighF16Args& a) {
  int head = 0;
  for (; a.heads - head >= 4; head += 4) weigh_f16_heads<4>(a, head);
  if (a.heads - head == 3) weigh_f16_heads<3>(a, head);
  if (a.heads - head == 2) weigh_f16_heads<2>(a, head);
  if (a.heads - head == 1) weigh_f16_heads<1>(a, head);
}

float max(const float* x, std::size_t n) {
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) top = _mm512_max_ps(top, _mm512_loadu_ps(x + i));
  if (i < n) {
    const __mmask16 mask = mask_of(static_cast<int>(n - i));
    top = _mm512_mask_max_ps(top, mask, top, _mm512_maskz_loadu_ps(mask, x + i));
  }
  return _mm512_reduce_max_ps(top);
}

// exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts; the Taylor polynomial of degree 6 is off by 1.2e-7.
inline __m512 exp_of(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-104.f));
  const __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(k, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.3888889e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3333333e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1666667e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666667e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
  return _mm512_scalef_ps(p, k);
}

float exp_sum(float* x, std::size_t n, float top) {
  const __m512 shift = _mm512_set1_ps(top);
  __m512 sum = _mm512_setzero_ps();
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 e = exp_of(_mm512_sub_ps(_mm512_loadu_ps(x + i), shift));
    _mm512_storeu_ps(x + i, e);
    sum = _mm512_add_ps(sum, e);
  }
  if (i < n) {
    const __mmask16 mask = mask_of(static_cast<int>(n - i));
    const __m512 e = _mm512_maskz_mov_ps(mask, exp_of(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), shift)));
    _mm512_mask_storeu_ps(x + i, mask, e);
    sum = _mm512_add_ps(sum, e);
  }
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

const AttendKernels kAttendAvx512 = {score_codes, weigh_codes, fold_keys, fold_values,
                                     score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
