// Decode-attention kernels for AVX-512 with VNNI: one `vpdpbusd` multiplies 64 codes with a broadcast quad.
#include <immintrin.h>

#include <utility>

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
  template <int N>
  static Sums shift_right(Sums sums) {
    return _mm512_srai_epi32(sums, N);
  }
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
  static constexpr int kCount = 16, kWeighChunks = 4;
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
  static Vector abs(Vector a) { return _mm512_abs_ps(a); }
  static float reduce_add(Vector v) { return _mm512_reduce_add_ps(v); }
  static float reduce_max(Vector v) { return _mm512_reduce_max_ps(v); }
  static Vector load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Vector load_f16_first(const std::uint16_t* p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(n), p));
  }
  static Ints round(Vector v) { return _mm512_cvtps_epi32(v); }
  static Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static std::int32_t reduce_add_ints(Ints v) { return _mm512_reduce_add_epi32(v); }
  static void store_i8(std::int8_t* p, int n, Ints v) { _mm512_mask_cvtepi32_storeu_epi8(p, mask_of(n), v); }
  static Ints high_half(Ints x) { return _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(64)), 7); }
  static Ints low_half(Ints x, Ints high) { return _mm512_sub_epi32(x, _mm512_slli_epi32(high, 7)); }
  // exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts; the Taylor polynomial of degree 6 is off by 1.2e-7.
  static Vector exp_of(Vector x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-105.f));
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
};

#include "simd/attend_float_body.inc"

}  // namespace

const AttendKernels kAttendAvx512 = {score_codes, weigh_codes, fold_keys, fold_values,
                                     score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
