// Decode-attention kernels for AVX-512 with VNNI: one `vpdpbusd` multiplies 64 codes with a broadcast quad.
#include <immintrin.h>

#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

inline __mmask16 mask_of(int left) { return static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u); }

struct Dot {
  using Codes = __m512i;
  using Words = __m512i;
  using Sums = __m512i;
  static constexpr int kBytes = 64, kWords = 16, kScoreSums = 24, kWeighSums = 24;

  template <int Bits, int Accs>
  struct Parts {
    static constexpr int kShift[4] = {0, Bits, 2 * Bits, 3 * Bits};
    Codes part[8 / Bits];
    explicit Parts(Codes x) {
      if constexpr (Bits == 8) {
        part[0] = x;
      } else if constexpr (Bits == 4 && Accs == 2) {
        part[0] = _mm512_and_si512(x, _mm512_set1_epi8(15));
        part[1] = _mm512_andnot_si512(_mm512_set1_epi8(15), x);
      } else if constexpr (Bits == 4) {
        part[0] = _mm512_and_si512(x, _mm512_set1_epi8(15));
        part[1] = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
      } else if constexpr (Accs == 4) {
        part[0] = _mm512_and_si512(x, _mm512_set1_epi8(3));
        part[1] = _mm512_and_si512(x, _mm512_set1_epi8(12));
        part[2] = _mm512_and_si512(x, _mm512_set1_epi8(48));
        part[3] = _mm512_and_si512(x, _mm512_set1_epi8(-64));
      } else if constexpr (Accs == 1) {
        part[0] = _mm512_and_si512(x, _mm512_set1_epi8(3));
        part[1] = _mm512_and_si512(_mm512_srli_epi16(x, 2), _mm512_set1_epi8(3));
        part[2] = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(3));
        part[3] = _mm512_and_si512(_mm512_srli_epi16(x, 6), _mm512_set1_epi8(3));
      } else {
        static_assert(Accs == 2);
        const Codes high = _mm512_srli_epi16(x, 4);
        part[0] = _mm512_and_si512(x, _mm512_set1_epi8(3));
        part[1] = _mm512_and_si512(x, _mm512_set1_epi8(12));
        part[2] = _mm512_and_si512(high, _mm512_set1_epi8(3));
        part[3] = _mm512_and_si512(high, _mm512_set1_epi8(12));
      }
    }
  };

  // `once`: or else a register is saved by loading the same codes again for every row.
  static Codes once(Codes x) {
    asm("" : "+v"(x));
    return x;
  }
  static Codes load(const std::uint8_t* p) { return once(_mm512_loadu_si512(p)); }
  static Codes load_first(const std::uint8_t* p, int words) {
    return once(_mm512_maskz_loadu_epi32(mask_of(words), p));
  }
  static Words word(const std::int8_t* p) {
    int x;
    __builtin_memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
  }
  // Not the intrinsic: GCC 12 would copy each sum into another register and back, and run out of registers.
  static Sums dot(Sums sums, Codes codes, Words words) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(words));
    return sums;
  }
  static Sums add(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  static Sums shift_right(Sums sums, int n) { return _mm512_srav_epi32(sums, _mm512_set1_epi32(n)); }
  static constexpr bool kSigned = false;
  static std::int32_t sum_of(const std::int8_t*, int) { return 0; }
  static Sums broadcast(std::int32_t x) { return _mm512_set1_epi32(x); }
  template <bool Two>
  static void store_dot(float* at, int words, Sums hi, Sums lo, float scale) {
    __m512 x = _mm512_cvtepi32_ps(hi);
    if constexpr (Two) x = _mm512_fmadd_ps(x, _mm512_set1_ps(128.f), _mm512_cvtepi32_ps(lo));
    const __mmask16 mask = mask_of(words);
    _mm512_mask_storeu_ps(at, mask, _mm512_fmadd_ps(x, _mm512_set1_ps(scale), _mm512_maskz_loadu_ps(mask, at)));
  }
  static void prefetch(const std::uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
};

#include "simd/attend_dot_body.inc"

struct Lanes {
  using Vector = __m512;
  using Ints = __m512i;
  static constexpr int kCount = 16, kDots = 16, kWeighChunks = 4;
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(mask_of(n), p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static void store_first(float* p, int n, Vector v) { _mm512_mask_storeu_ps(p, mask_of(n), v); }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector max_abs(Vector a, Vector b) { return _mm512_range_ps(a, b, 0x0b); }  // magnitudes, sign cleared
  static float reduce_add(Vector v) { return _mm512_reduce_add_ps(v); }
  static float reduce_max(Vector v) { return _mm512_reduce_max_ps(v); }
  static Vector load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Vector load_f16_first(const std::uint16_t* p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(n), p));
  }
  static Ints round(Vector v) { return _mm512_cvtps_epi32(v); }
  static Vector to_float(Ints x) { return _mm512_cvtepi32_ps(x); }
  // Packing works within 128 bits: number 4 * lane + i of vector j is dword 4 * lane + j of the result.
  static void store_bytes(std::int8_t* p, __m512i a, __m512i b) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(a, b)));
  }
  static __m512i high_half(__m512i x) { return _mm512_srai_epi16(_mm512_add_epi16(x, _mm512_set1_epi16(64)), 7); }
  static __m512i low_half(__m512i x, __m512i high) { return _mm512_sub_epi16(x, _mm512_slli_epi16(high, 7)); }
  static Ints add_pairs(Ints total, __m512i a, __m512i b) {
    total = _mm512_dpwssd_epi32(total, a, _mm512_set1_epi16(1));
    return _mm512_dpwssd_epi32(total, b, _mm512_set1_epi16(1));
  }
  static void split(const Ints* x, std::int8_t* hi, std::int8_t* lo, Ints& total) {
    const __m512i a = _mm512_packs_epi32(x[0], x[1]), b = _mm512_packs_epi32(x[2], x[3]);
    const __m512i high_a = high_half(a), high_b = high_half(b);
    store_bytes(hi, high_a, high_b);
    store_bytes(lo, low_half(a, high_a), low_half(b, high_b));
    total = add_pairs(total, a, b);
  }
  static void pack(const Ints* x, std::int8_t* hi, Ints& total) {
    const __m512i a = _mm512_packs_epi32(x[0], x[1]), b = _mm512_packs_epi32(x[2], x[3]);
    store_bytes(hi, a, b);
    total = add_pairs(total, a, b);
  }
  // Pairs within 128 bits, pairs of pairs, then the four 128-bit parts.
  static Vector add_pairs(Vector a, Vector b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
  static Vector sums_of_four(const Vector* v) {
    const __m512d a = _mm512_castps_pd(add_pairs(v[0], v[1])), b = _mm512_castps_pd(add_pairs(v[2], v[3]));
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  static void sum_of_four(const Vector* v, float* out) {
    const Vector sum = sums_of_four(v);
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
  static void max_of_four(const Vector* v, float* out) {
    const auto pairs = [](Vector a, Vector b) {
      return _mm512_castps_pd(_mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    };
    const __m512d a = pairs(v[0], v[1]), b = pairs(v[2], v[3]);
    const Vector top =
        _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(top), _mm512_extractf32x8_ps(top, 1));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
  static Vector add_parts(Vector a, Vector b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  static Vector sums(const Vector* v) {
    return add_parts(add_parts(sums_of_four(v), sums_of_four(v + 4)),
                     add_parts(sums_of_four(v + 8), sums_of_four(v + 12)));
  }
  // exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts. 1.5 * 2^23 rounds to an integer. The polynomial is the
  // best of degree 5 that begins with 1 + r: off by 1.05e-7.
  static Vector exp_of(Vector x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-105.f));
    const __m512 magic = _mm512_set1_ps(12582912.f);
    const __m512 k = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), magic), magic);
    __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(k, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(8.312501289e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.189033157e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.666711539e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.999923031e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, k);
  }
};

#include "simd/attend_float_body.inc"

}  // namespace

const AttendKernels kAttendAvx512 = {score_codes, weigh_codes, fold_keys, fold_values,
                                     score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
