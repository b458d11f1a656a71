// Decode-attention kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

#include "simd/attend_maddubs_body.inc"

struct Lanes {
  using Vector = __m256;
  using Ints = __m256i;
  static constexpr int kCount = 8, kDots = 8, kWeighChunks = 2;
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
  static Vector max_abs(Vector a, Vector b) { return _mm256_max_ps(a, _mm256_andnot_ps(_mm256_set1_ps(-0.f), b)); }
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
  static Vector to_float(Ints x) { return _mm256_cvtepi32_ps(x); }
  // Packing works within 128 bits: number 4 * lane + i of vector j is dword 4 * lane + j of the result.
  static void store_bytes(std::int8_t* p, __m256i a, __m256i b) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
  }
  static __m256i high_half(__m256i x) { return _mm256_srai_epi16(_mm256_add_epi16(x, _mm256_set1_epi16(64)), 7); }
  static __m256i low_half(__m256i x, __m256i high) { return _mm256_sub_epi16(x, _mm256_slli_epi16(high, 7)); }
  static Ints add_pairs(Ints total, __m256i a, __m256i b) {
    const __m256i ones = _mm256_set1_epi16(1);
    return _mm256_add_epi32(total, _mm256_add_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones)));
  }
  static void split(const Ints* x, std::int8_t* hi, std::int8_t* lo, Ints& total) {
    const __m256i a = _mm256_packs_epi32(x[0], x[1]), b = _mm256_packs_epi32(x[2], x[3]);
    const __m256i high_a = high_half(a), high_b = high_half(b);
    store_bytes(hi, high_a, high_b);
    store_bytes(lo, low_half(a, high_a), low_half(b, high_b));
    total = add_pairs(total, a, b);
  }
  static void pack(const Ints* x, std::int8_t* hi, Ints& total) {
    const __m256i a = _mm256_packs_epi32(x[0], x[1]), b = _mm256_packs_epi32(x[2], x[3]);
    store_bytes(hi, a, b);
    total = add_pairs(total, a, b);
  }
  // Pairs within 128 bits, pairs of pairs, then the two 128-bit parts.
  static Vector add_pairs(Vector a, Vector b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  }
  static Vector sums_of_four(const Vector* v) {
    const __m256d a = _mm256_castps_pd(add_pairs(v[0], v[1])), b = _mm256_castps_pd(add_pairs(v[2], v[3]));
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  static void sum_of_four(const Vector* v, float* out) {
    const Vector sum = sums_of_four(v);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
  }
  static void max_of_four(const Vector* v, float* out) {
    const auto pairs = [](Vector a, Vector b) {
      return _mm256_castps_pd(_mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
    };
    const __m256d a = pairs(v[0], v[1]), b = pairs(v[2], v[3]);
    const Vector top =
        _mm256_max_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1)));
  }
  static Vector sums(const Vector* v) {
    const __m256 a = sums_of_four(v), b = sums_of_four(v + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  // exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts. 1.5 * 2^23 rounds to an integer and leaves it in the
  // low bits. The polynomial is the best of degree 5 that begins with 1 + r: off by 1.05e-7. 2^k in two factors: the
  // results down to the smallest subnormal are right.
  static Vector exp_of(Vector x) {
    x = _mm256_max_ps(x, _mm256_set1_ps(-105.f));
    const __m256 magic = _mm256_set1_ps(12582912.f);
    const __m256 rounded = _mm256_fmadd_ps(x, _mm256_set1_ps(1.44269504f), magic), k = _mm256_sub_ps(rounded, magic);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(8.312501289e-3f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.189033157e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.666711539e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.999923031e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.f));
    const __m256i power = _mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_castps_si256(magic));
    const __m256i half = _mm256_srai_epi32(power, 1);
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
