// Contract of the coding kernels: floats to codes, and codes to narrower codes. Bit-exact on every ISA.
//
// The bodies are plain loops (coding_body.inc) that each variant compiles with its own instruction set; IEEE
// arithmetic without contraction makes them equal. Kernels allocate nothing; no alignment is required.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neve::simd {

// How codes become narrower.
//   8 -> 4: min((multiply * (q + add)) >> shift, 15)         equivalent: 241, 8, 12
//   4 -> 2: number of thresholds t with q >= t               equivalent: 3, 8, 13
struct NarrowRule {
  std::uint16_t multiply = 241;
  std::uint16_t add = 8;
  std::uint16_t shift = 12;
  std::uint8_t threshold[3] = {3, 8, 13};
};

struct CodingKernels {
  void (*f32_from_f16)(const std::uint16_t* x, float* out, std::size_t n);
  void (*f16_from_f32)(const float* x, std::uint16_t* out, std::size_t n);  // to nearest, ties to even
  // x: [rows][columns]; low, high: [columns], the range over rows. Requires: rows >= 1, no NaN.
  void (*column_range)(const float* x, int rows, int columns, float* low, float* high);
  // low, high: [rows], the range over columns. Requires: columns >= 1, no NaN.
  void (*row_range)(const float* x, int rows, int columns, float* low, float* high);
  // codes [rows][columns] = clamp(rint((x - min) / scale), 0, 255), min and scale per column; scale 0 gives 0.
  // The subtraction and the division are f32, correctly rounded; rint has ties to even.
  void (*quantize_columns)(const float* x, int rows, int columns, const float* scale, const float* min,
                           std::uint8_t* codes);
  // The same with min and scale per row.
  void (*quantize_rows)(const float* x, int rows, int columns, const float* scale, const float* min,
                        std::uint8_t* codes);
  // Packs two halves: out[i] = narrow(in[i]) | narrow(in[i + n]) << 4 for 8-bit codes in[2n], i < n.
  void (*narrow_8_to_4)(const std::uint8_t* in, std::size_t n, const NarrowRule& rule, std::uint8_t* out);
  // Packs nibbles in[2n] (lanes 0 and 2 low, 1 and 3 from in[i + n]) into crumbs: out[i] = lanes of in[i] low,
  // in[i + n] low, in[i] high, in[i + n] high, lowest bits first.
  void (*narrow_4_to_2)(const std::uint8_t* in, std::size_t n, const NarrowRule& rule, std::uint8_t* out);
  // In place orthonormal Walsh-Hadamard transform of each row's first n channels, n a power of two; rows of
  // `stride` floats. The butterflies run from distance 1 up, then one multiplication by 1/sqrt(n).
  void (*rotate_rows)(float* x, int rows, std::ptrdiff_t stride, int n);
  // The same transform of each column over n rows: x[n][stride], `columns` used. The same bits as rotate_rows gives.
  void (*rotate_columns)(float* x, int n, std::ptrdiff_t stride, int columns);
};

extern const CodingKernels kCodingScalar;
extern const CodingKernels kCodingAvx2;
extern const CodingKernels kCodingAvx512;
extern const CodingKernels kCodingNeon;

}  // namespace neve::simd
