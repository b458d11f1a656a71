// The tile kernels for NEON: blocks of 6 rows by 16 columns, 24 of the 32 registers.
#include <arm_neon.h>

#include "simd/tile_kernels.h"

namespace neve::simd {
namespace {

struct Lanes {
  using Vector = float32x4_t;
  static constexpr int kCount = 4, kRows = 6, kVectors = 4;
  static Vector load(const float* p) { return vld1q_f32(p); }
  static Vector load_first(const float* p, int n) {
    float x[4] = {};
    for (int i = 0; i < n; ++i) x[i] = p[i];
    return vld1q_f32(x);
  }
  static void store(float* p, Vector v) { vst1q_f32(p, v); }
  static void store_first(float* p, int n, Vector v) {
    float x[4];
    vst1q_f32(x, v);
    for (int i = 0; i < n; ++i) p[i] = x[i];
  }
  static Vector zero() { return vdupq_n_f32(0.f); }
  static Vector broadcast(float x) { return vdupq_n_f32(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
};

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  const std::size_t whole = n - n % 4;
  for (std::size_t i = 0; i < whole; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
  for (std::size_t i = whole; i < n; ++i)
    out[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x[i]))), 0);
}

#include "simd/tile_body.inc"

}  // namespace

const TileKernels kTileNeon = {multiply, expand_keys, expand_values, transpose_f16};

}  // namespace neve::simd
