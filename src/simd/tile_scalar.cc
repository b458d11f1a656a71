// The definition of the tile kernels: vectors of one float.
#include <cmath>

#include "base/float16.h"
#include "simd/tile_kernels.h"

namespace neve::simd {
namespace {

struct Lanes {
  using Vector = float;
  static constexpr int kCount = 1, kRows = 4, kVectors = 4;
  static Vector load(const float* p) { return *p; }
  static Vector load_first(const float* p, int) { return *p; }
  static void store(float* p, Vector v) { *p = v; }
  static void store_first(float* p, int, Vector v) { *p = v; }
  static Vector zero() { return 0.f; }
  static Vector broadcast(float x) { return x; }
  static Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
};

void convert_from_f16(const std::uint16_t* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = neve::f32_from_f16(x[i]);
}

#include "simd/tile_body.inc"

}  // namespace

const TileKernels kTileScalar = {multiply, expand_keys, expand_values, transpose_f16};

}  // namespace neve::simd
