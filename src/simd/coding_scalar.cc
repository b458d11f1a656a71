// The definition of the coding kernels: the common loops for the baseline instruction set.
#include "base/float16.h"
#include "simd/coding_kernels.h"

namespace neve::simd {
namespace {

#include "simd/coding_body.inc"

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = neve::f32_from_f16(x[i]);
}

void convert_to_f16(const float* x, std::uint16_t* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = neve::f16_from_f32(x[i]);
}

}  // namespace

const CodingKernels kCodingScalar = {convert_from_f16, convert_to_f16, column_range,  row_range,   quantize_columns,
                                     quantize_rows,    narrow_8_to_4,  narrow_4_to_2, rotate_rows, rotate_columns};

}  // namespace neve::simd
