// The coding kernels compiled for AVX512, with its conversion instructions.
#include <immintrin.h>

#include "simd/coding_kernels.h"

namespace neve::simd {
namespace {

#include "simd/coding_body.inc"

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  for (; i < n; ++i) out[i] = _cvtsh_ss(x[i]);
}

void convert_to_f16(const float* x, std::uint16_t* out, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
  }
  for (; i < n; ++i) out[i] = static_cast<std::uint16_t>(_cvtss_sh(x[i], 0));
}

}  // namespace

const CodingKernels kCodingAvx512 = {convert_from_f16, convert_to_f16, column_range,  row_range,   quantize_columns,
                                     quantize_rows,    narrow_8_to_4,  narrow_4_to_2, rotate_rows, rotate_columns};

}  // namespace neve::simd
