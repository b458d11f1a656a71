// The tile kernels for AVX2: blocks of 6 rows by 16 columns, twelve of the sixteen registers.
#include <immintrin.h>

#include "simd/tile_kernels.h"

namespace neve::simd {
namespace {

struct Lanes {
  using Vector = __m256;
  static constexpr int kCount = 8, kRows = 6, kVectors = 2;
  // All bits in the first n lanes, n in [0, 8].
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static void store_first(float* p, int n, Vector v) { _mm256_maskstore_ps(p, first(n), v); }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
};

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  const std::size_t whole = n - n % 8;
  for (std::size_t i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  for (std::size_t i = whole; i < n; ++i) out[i] = _cvtsh_ss(x[i]);
}

#include "simd/tile_body.inc"

}  // namespace

const TileKernels kTileAvx2 = {multiply, expand_keys, expand_values, transpose_f16};

}  // namespace neve::simd
