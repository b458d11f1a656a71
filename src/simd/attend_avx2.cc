// Decode-attention kernels for AVX2.
//
// 4 and 2 bits: `vpmaddubsw` adds two products of a code and an int8 into 16 bits. At most 15 * 127 * 2 = 3810 and
// 3 * 127 * 2 = 762: eight and 43 of them fit into 16 bits, so sums are widened only that often.
// 8 bits: 255 * 127 * 2 does not fit. Even and odd bytes become 16-bit numbers, and `vpmaddwd` multiplies them with
// 16-bit numbers: with x = 128 * hi + lo as a whole, both halves at the price of one.
#include <immintrin.h>

#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

inline __m256i load_bytes(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Parts of 32 bytes of `Bits`-wide codes as the left operands of a dot. 4 and 2 bits: part p holds the codes of lane
// p as bytes. 8 bits: the even and the odd bytes as 16-bit numbers, both of the same lane.
template <int Bits>
struct Parts {
  static constexpr int kCount = Bits == 8 ? 2 : 8 / Bits;
  __m256i part[kCount];
  explicit Parts(__m256i x) {
    if constexpr (Bits == 8) {
      part[0] = _mm256_and_si256(x, _mm256_set1_epi16(255));
      part[1] = _mm256_srli_epi16(x, 8);
    } else if constexpr (Bits == 4) {
      const __m256i mask = _mm256_set1_epi8(15);
      part[0] = _mm256_and_si256(x, mask);
      part[1] = _mm256_and_si256(_mm256_srli_epi16(x, 4), mask);
    } else {
      const __m256i mask = _mm256_set1_epi8(3);
      part[0] = _mm256_and_si256(x, mask);
      part[1] = _mm256_and_si256(_mm256_srli_epi16(x, 2), mask);
      part[2] = _mm256_and_si256(_mm256_srli_epi16(x, 4), mask);
      part[3] = _mm256_and_si256(_mm256_srli_epi16(x, 6), mask);
    }
  }
};

template <int Bits>
constexpr int kDotsIn16Bits = Bits == 4 ? 8 : 43;

inline __m256i broadcast_word(const void* x) {
  int word;
  __builtin_memcpy(&word, x, 4);
  return _mm256_set1_epi32(word);
}

inline __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// The right operands of `Heads` heads: rows of int8, those of hi first.
template <int Heads, bool Two>
struct ByteRows {
  static constexpr int kRows = Two ? 2 * Heads : Heads;
  const std::int8_t* hi;
  const std::int8_t* lo;
  std::ptrdiff_t stride;
  __m256i word(int row, int quad) const {
    return broadcast_word((row < Heads ? hi + row * stride : lo + (row - Heads) * stride) + quad * 4);
  }
};

// The same as 16-bit numbers for 8-bit codes: of each quad numbers 0, 2, then 1, 3. Joined: a row is 128 * hi + lo.
// The joined sum rounds to the same float as fma(hi, 128, lo) while both are exact: up to 128 quads, since
// 512 * 255 * 127 < 2^24 and 512 * 255 * (127 * 128 + 63) < 2^31.
constexpr int kJoinQuads = 128, kMaxQuads = 256;

template <int Rows>
struct PairRows {
  static constexpr int kRows = Rows;
  std::int16_t x[kMaxQuads][Rows][4];
  __m256i word(int row, int quad, int odd) const { return broadcast_word(&x[quad][row][odd * 2]); }
};

template <int Rows, class Number>
void fill_pairs(PairRows<Rows>& rows, int row, int quads, const Number& number) {
  for (int quad = 0; quad < quads; ++quad) {
    for (int k = 0; k < 4; ++k)
      rows.x[quad][row][(k & 1) * 2 + k / 2] = static_cast<std::int16_t>(number(quad * 4 + k));
  }
}

template <int Heads, bool Two, bool Joined>
void make_pairs(const std::int8_t* hi, const std::int8_t* lo, std::ptrdiff_t stride, int quads,
                PairRows<Two && !Joined ? 2 * Heads : Heads>& rows) {
  for (int h = 0; h < Heads; ++h) {
    const std::int8_t* high = hi + h * stride;
    const std::int8_t* low = Two ? lo + h * stride : nullptr;
    if constexpr (Joined) {
      fill_pairs(rows, h, quads, [&](int i) { return high[i] * 128 + low[i]; });
    } else {
      fill_pairs(rows, h, quads, [&](int i) { return high[i]; });
      if constexpr (Two) fill_pairs(rows, Heads + h, quads, [&](int i) { return low[i]; });
    }
  }
}

// Dots of a head as floats, from its sums: of hi and lo, or of one row.
template <int Heads, int Rows>
inline __m256 dot_of(__m256i first, __m256i second) {
  if constexpr (Rows == Heads) return _mm256_cvtepi32_ps(first);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), _mm256_set1_ps(128.f), _mm256_cvtepi32_ps(second));
}

// Scores of `Heads` heads for 8 * Chunks * (8 / Bits) tokens.
template <int Bits, int Heads, int Chunks, class Rows>
void score_block(const ScoreArgs& a, const Rows& rows, int first_head, int chunk) {
  constexpr int kRows = Rows::kRows, kLanes = 8 / Bits, kQuadBytes = 64 * Bits;
  __m256i sum[kRows][Chunks][kLanes];
  for (auto& row : sum) {
    for (auto& c : row) {
      for (auto& s : c) s = _mm256_setzero_si256();
    }
  }
  const std::uint8_t* codes = a.codes + chunk * 32;
  const std::uint8_t* next = first_head == 0 && a.prefetch != nullptr ? a.prefetch + chunk * 32 : nullptr;
  if constexpr (Bits == 8) {
    for (int quad = 0; quad < a.quads; ++quad, codes += kQuadBytes) {
      if (next != nullptr) {
        for (int c = 0; c < Chunks; c += 2) {
          _mm_prefetch(reinterpret_cast<const char*>(next + quad * kQuadBytes + c * 32), _MM_HINT_T0);
        }
      }
#pragma GCC unroll 4
      for (int c = 0; c < Chunks; ++c) {
        const Parts<8> x(load_bytes(codes + c * 32));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m256i even = _mm256_madd_epi16(x.part[0], rows.word(r, quad, 0));
          const __m256i odd = _mm256_madd_epi16(x.part[1], rows.word(r, quad, 1));
          sum[r][c][0] = _mm256_add_epi32(sum[r][c][0], _mm256_add_epi32(even, odd));
        }
      }
    }
  } else {
    for (int first = 0; first < a.quads; first += kDotsIn16Bits<Bits>) {
      const int end = first + kDotsIn16Bits<Bits> < a.quads ? first + kDotsIn16Bits<Bits> : a.quads;
      __m256i small[kRows][Chunks][kLanes];
      for (auto& row : small) {
        for (auto& c : row) {
          for (auto& s : c) s = _mm256_setzero_si256();
        }
      }
      for (int quad = first; quad < end; ++quad, codes += kQuadBytes) {
        if (next != nullptr) {
          for (int c = 0; c < Chunks; c += 2) {
            _mm_prefetch(reinterpret_cast<const char*>(next + quad * kQuadBytes + c * 32), _MM_HINT_T0);
          }
        }
#pragma GCC unroll 4
        for (int c = 0; c < Chunks; ++c) {
          const Parts<Bits> x(load_bytes(codes + c * 32));
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const __m256i q = rows.word(r, quad);
#pragma GCC unroll 4
            for (int p = 0; p < kLanes; ++p) {
              small[r][c][p] = _mm256_add_epi16(small[r][c][p], _mm256_maddubs_epi16(x.part[p], q));
            }
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < Chunks; ++c) {
          for (int p = 0; p < kLanes; ++p) sum[r][c][p] = _mm256_add_epi32(sum[r][c][p], widen(small[r][c][p]));
        }
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    const __m256 scale = _mm256_set1_ps(a.scale[first_head + h]);
    float* scores = a.scores + (first_head + h) * a.score_stride;
    for (int c = 0; c < Chunks; ++c) {
      for (int p = 0; p < kLanes; ++p) {
        float* at = scores + p * (kPageTokens / kLanes) + (chunk + c) * 8;
        const __m256 dot = dot_of<Heads, kRows>(sum[h][c][p], sum[kRows - Heads + h][c][p]);
        _mm256_storeu_ps(at, _mm256_fmadd_ps(dot, scale, _mm256_loadu_ps(at)));
      }
    }
  }
}

// Chunks of 32 bytes of a quad (there are 2 * Bits) whose sums fit into eight registers.
template <int Bits, int Rows>
constexpr int chunks_per_block() {
  int chunks = 4;
  while (chunks > 1 && chunks * Rows * (8 / Bits) > 8) chunks /= 2;
  return chunks;
}

template <int Bits, int Heads, class Rows>
void score_blocks(const ScoreArgs& a, const Rows& rows, int first_head) {
  constexpr int kChunks = chunks_per_block<Bits, Rows::kRows>();
  for (int chunk = 0; chunk < 2 * Bits; chunk += kChunks) {
    score_block<Bits, Heads, kChunks>(a, rows, first_head, chunk);
  }
}

template <int Bits, int Heads, bool Two>
void score_heads(const ScoreArgs& a, int first_head) {
  const std::int8_t* hi = a.hi + first_head * a.query_stride;
  const std::int8_t* lo = Two ? a.lo + first_head * a.query_stride : nullptr;
  if constexpr (Bits != 8) {
    score_blocks<Bits, Heads>(a, ByteRows<Heads, Two>{hi, lo, a.query_stride}, first_head);
  } else if (Two && a.quads > kJoinQuads) {
    PairRows<Two ? 2 * Heads : Heads> rows;
    make_pairs<Heads, Two, false>(hi, lo, a.query_stride, a.quads, rows);
    score_blocks<8, Heads>(a, rows, first_head);
  } else {
    PairRows<Heads> rows;
    make_pairs<Heads, Two, Two>(hi, lo, a.query_stride, a.quads, rows);
    score_blocks<8, Heads>(a, rows, first_head);
  }
}

// Value channels [channel, channel + 8 * Chunks) for `Heads` heads; only four channels if that is all that is left.
template <int Bits, int Heads, int Chunks, class Rows>
void weigh_block(const WeighArgs& a, const Rows& rows, int first_head, int channel) {
  constexpr int kRows = Rows::kRows, kLanes = 8 / Bits, kGroups = kPageTokens / 4 / kLanes;
  const bool four = Chunks == 1 && a.channels - channel < 8;
  __m256i sum[kRows][Chunks];
  for (auto& row : sum) {
    for (auto& s : row) s = _mm256_setzero_si256();
  }
  const std::uint8_t* codes = a.codes + channel * 4;
  const std::uint8_t* next = first_head == 0 && a.prefetch != nullptr ? a.prefetch + channel * 4 : nullptr;
  const auto load = [four](const std::uint8_t* p) {
    return four ? _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))) : load_bytes(p);
  };
  const auto prefetch = [next, &a](int group) {
    if (next == nullptr) return;
    for (int c = 0; c < Chunks; c += 2) {
      _mm_prefetch(reinterpret_cast<const char*>(next + group * a.row_bytes + c * 32), _MM_HINT_T0);
    }
  };
  if constexpr (Bits == 8) {
    for (int group = 0; group < kGroups; ++group, codes += a.row_bytes) {
      prefetch(group);
#pragma GCC unroll 4
      for (int c = 0; c < Chunks; ++c) {
        const Parts<8> x(load(codes + c * 32));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m256i even = _mm256_madd_epi16(x.part[0], rows.word(r, group, 0));
          const __m256i odd = _mm256_madd_epi16(x.part[1], rows.word(r, group, 1));
          sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_add_epi32(even, odd));
        }
      }
    }
  } else {
    // A load makes kLanes dots for the same sum. 2 bits: all 32 of a page fit into 16 bits.
    constexpr int kStep = Bits == 4 ? kDotsIn16Bits<4> / kLanes : kGroups;
    static_assert(kStep * kLanes <= kDotsIn16Bits<Bits> && kGroups % kStep == 0);
    for (int first = 0; first < kGroups; first += kStep) {
      __m256i small[kRows][Chunks];
      for (auto& row : small) {
        for (auto& s : row) s = _mm256_setzero_si256();
      }
      for (int group = first; group < first + kStep; ++group, codes += a.row_bytes) {
        prefetch(group);
#pragma GCC unroll 4
        for (int c = 0; c < Chunks; ++c) {
          const Parts<Bits> x(load(codes + c * 32));
#pragma GCC unroll 4
          for (int p = 0; p < kLanes; ++p) {
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const __m256i w = rows.word(r, p * kGroups + group);
              small[r][c] = _mm256_add_epi16(small[r][c], _mm256_maddubs_epi16(x.part[p], w));
            }
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < Chunks; ++c) sum[r][c] = _mm256_add_epi32(sum[r][c], widen(small[r][c]));
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    const __m256 scale = _mm256_set1_ps(a.scale[first_head + h]);
    float* out = a.out + (first_head + h) * a.out_stride + channel;
    for (int c = 0; c < Chunks; ++c) {
      const __m256 dot = dot_of<Heads, kRows>(sum[h][c], sum[kRows - Heads + h][c]);
      if (four) {
        _mm_storeu_ps(out, _mm_fmadd_ps(_mm256_castps256_ps128(dot), _mm256_castps256_ps128(scale), _mm_loadu_ps(out)));
      } else {
        _mm256_storeu_ps(out + c * 8, _mm256_fmadd_ps(dot, scale, _mm256_loadu_ps(out + c * 8)));
      }
    }
  }
}

template <int Bits, int Heads, class Rows>
void weigh_blocks(const WeighArgs& a, const Rows& rows, int first_head) {
  constexpr int kChunks = Rows::kRows <= 2 ? 4 : Rows::kRows <= 4 ? 2 : 1;
  int channel = 0;
  for (; a.channels - channel >= 8 * kChunks; channel += 8 * kChunks) {
    weigh_block<Bits, Heads, kChunks>(a, rows, first_head, channel);
  }
  for (; channel < a.channels; channel += 8) weigh_block<Bits, Heads, 1>(a, rows, first_head, channel);
}

template <int Bits, int Heads, bool Two>
void weigh_heads(const WeighArgs& a, int first_head) {
  const std::int8_t* hi = a.hi + first_head * kPageTokens;
  const std::int8_t* lo = Two ? a.lo + first_head * kPageTokens : nullptr;
  if constexpr (Bits != 8) {
    weigh_blocks<Bits, Heads>(a, ByteRows<Heads, Two>{hi, lo, kPageTokens}, first_head);
  } else {
    PairRows<Heads> rows;
    make_pairs<Heads, Two, Two>(hi, lo, kPageTokens, kPageTokens / 4, rows);
    weigh_blocks<8, Heads>(a, rows, first_head);
  }
}

template <int Bits, bool Two>
void score_codes_of(const ScoreArgs& a) {
  constexpr int kBlock = Two && Bits != 8 ? 2 : 4;
  int head = 0;
  for (; a.heads - head >= kBlock; head += kBlock) score_heads<Bits, kBlock, Two>(a, head);
  if constexpr (kBlock == 4) {
    if (a.heads - head == 3) score_heads<Bits, 3, Two>(a, head);
    if (a.heads - head == 2) score_heads<Bits, 2, Two>(a, head);
  }
  if (a.heads - head == 1) score_heads<Bits, 1, Two>(a, head);
}

template <int Bits, bool Two>
void weigh_codes_of(const WeighArgs& a) {
  int head = 0;
  for (; a.heads - head >= 4; head += 4) weigh_heads<Bits, 4, Two>(a, head);
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

struct Lanes {
  using Vector = __m256;
  using Ints = __m256i;
  static constexpr int kCount = 8, kWeighChunks = 2;
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static void store_first(float* p, int n, Vector v) { _mm256_maskstore_ps(p, first(n), v); }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector abs(Vector a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a); }
  static float reduce_add(Vector v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float reduce_max(Vector v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static Vector load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Vector load_f16_first(const std::uint16_t* p, int n) {
    std::uint16_t x[8] = {};
    for (int i = 0; i < n; ++i) x[i] = p[i];
    return load_f16(x);
  }
  static Ints round(Vector v) { return _mm256_cvtps_epi32(v); }
  static Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static std::int32_t reduce_add_ints(Ints v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
  }
  static void store_i8(std::int8_t* p, int n, Ints v) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const long long bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    __builtin_memcpy(p, &bytes, n >= 8 ? 8 : 4);
  }
  static Ints high_half(Ints x) { return _mm256_srai_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(64)), 7); }
  static Ints low_half(Ints x, Ints high) { return _mm256_sub_epi32(x, _mm256_slli_epi32(high, 7)); }
  // exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts; the Taylor polynomial of degree 6 is off by 1.2e-7.
  // 2^k in two factors: the results down to the smallest subnormal are right.
  static Vector exp_of(Vector x) {
    x = _mm256_max_ps(x, _mm256_set1_ps(-105.f));
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), 0);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.3888889e-3f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3333333e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1666667e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666667e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.f));
    const __m256i power = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(power, 1);
    p = _mm256_mul_ps(p, power_of_two(half));
    return _mm256_mul_ps(p, power_of_two(_mm256_sub_epi32(power, half)));
  }
  static Vector power_of_two(Ints k) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
  }
};

#include "simd/attend_float_body.inc"

}  // namespace

const AttendKernels kAttendAvx2 = {score_codes, weigh_codes, fold_keys, fold_values,
                                   score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
