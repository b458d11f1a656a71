// The coding kernels compiled for NEON, with its conversion instructions.
#include <arm_neon.h>

#include "simd/coding_kernels.h"

namespace neve::simd {
namespace {

#include "simd/coding_body.inc"

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  const std::size_t whole = n - n % 4;
  for (std::size_t i = 0; i < whole; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
  for (std::size_t i = whole; i < n; ++i)
    out[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x[i]))), 0);
}

void convert_to_f16(const float* x, std::uint16_t* out, std::size_t n) {
  const std::size_t whole = n - n % 4;
  for (std::size_t i = 0; i < whole; i += 4) vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
  for (std::size_t i = whole; i < n; ++i)
    out[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x[i]))), 0);
}

}  // namespace

const CodingKernels kCodingNeon = {convert_from_f16, convert_to_f16, column_range,  row_range,   quantize_columns,
                                   quantize_rows,    narrow_8_to_4,  narrow_4_to_2, rotate_rows, rotate_columns};

}  // namespace neve::simd
