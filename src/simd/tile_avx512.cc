// The tile kernels for AVX-512: blocks of 6 rows by 64 columns.
#include <immintrin.h>

#include "simd/tile_kernels.h"

namespace neve::simd {
namespace {

struct Lanes {
  using Vector = __m512;
  static constexpr int kCount = 16, kRows = 6, kVectors = 4;
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static void store_first(float* p, int n, Vector v) { _mm512_mask_storeu_ps(p, first(n), v); }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
};

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) {
    const __mmask16 mask = n - i >= 16 ? static_cast<__mmask16>(0xffff) : Lanes::first(static_cast<int>(n - i));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, x + i)));
  }
}

#include "simd/tile_body.inc"

}  // namespace

const TileKernels kTileAvx512 = {multiply, expand_keys, expand_values, transpose_f16};

}  // namespace neve::simd
