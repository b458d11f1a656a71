// Contract of the decode-attention kernels: packed codes read with integer dot products, 16-bit pages with f32 ones.
//
// A page is 128 tokens. Codes are unsigned, `bits` wide (8, 4 or 2), stored so that one 64-byte load feeds a 4-way dot:
//   keys    [quad][token][4 channels]      codes of tokens t, t + 128*bits/8, ... share a byte, lowest bits first
//   values  [4 tokens][channel][4 tokens]  codes of token groups g, g + 32*bits/8, ... share a byte, lowest bits first
// so a quad of keys takes 64*bits bytes, and `channels` values take channels*16*bits bytes.
//
// The other operand (query or softmax weight) is 15 bits in two int8 halves, x = 128*hi + lo, |x| <= 16000,
// -64 <= lo <= 63; or one half alone (lo == nullptr), x = hi, |hi| <= 127.
// Exact: sums of hi and of lo are i32 and cannot overflow (576 channels * 255 * 127 < 2^31), then
// dot = fma(hi, 128, lo) in f32. The results of score_codes and weigh_codes are bit-exact on every ISA; the float
// kernels agree to 1e-5 relative to the sum of absolute terms.
// No alignment is required. Kernels allocate nothing and read nothing beyond the counts given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neve::simd {

inline constexpr int kPageTokens = 128;
inline constexpr float kLeastFolded = 1e-30f;  // the folds' least max|t|

// One run of key quads of equal width inside a page, for `heads` query heads.
struct ScoreArgs {
  const std::uint8_t* codes;  // [quads][64*bits]
  int bits;                   // 8, 4, 2
  int quads;                  // at most 256
  const std::int8_t* hi;      // [heads][query_stride]: 4*quads used
  const std::int8_t* lo;      // as hi, or null
  std::ptrdiff_t query_stride;
  int heads;
  const float* scale;  // [heads]
  float* scores;       // [heads][score_stride]: 128 used; scores = fma(dot, scale, scores)
  std::ptrdiff_t score_stride;
  const std::uint8_t* prefetch;  // bytes that will be read next, as many as codes; or null
};

// One run of value channels inside a page.
struct WeighArgs {
  const std::uint8_t* codes;  // [32*bits/8][channels][4]: rows of `row_bytes`
  int bits;
  int channels;              // a multiple of 4
  std::ptrdiff_t row_bytes;  // bytes from one group of 4 tokens to the next (4 * all channels of the block)
  const std::int8_t* hi;     // [heads][128]
  const std::int8_t* lo;     // as hi, or null
  int heads;
  const float* scale;  // [heads]
  float* out;          // [heads][out_stride]: `channels` used; out = fma(dot, scale, out)
  std::ptrdiff_t out_stride;
  const std::uint8_t* prefetch;
};

// Folds the per-channel key scales of a run into the queries and quantises the result.
// For each head: t = q * (scale_c * multiple); x = rint(t * limit / max|t|), limit = 16000 (two halves) or 127 (one);
//   out_scale = max|t| / limit, offset += sum_c q * (min_c + 127.5 * scale_c) - out_scale * center * sum_c x.
// The middle min + 127.5 * scale is the same for every width of one grid. multiple 0: only the middle counts.
// Where max|t| < kLeastFolded, whose inverse f32 may not hold: x = 0.
struct FoldKeysArgs {
  const float* queries;  // [heads][stride]: channels used
  std::ptrdiff_t stride;
  int heads;
  int channels;                // a multiple of 4, at most 1024
  const std::uint16_t* scale;  // [channels] f16
  const std::uint16_t* min;    // [channels] f16
  float multiple;              // 1, 17, 85, 85*clip
  float center;                // 127.5, 7.5, 1.5
  std::int8_t* hi;             // [heads][stride]
  std::int8_t* lo;             // as hi, or null = one half
  float* out_scale;            // [heads]
  float* offset;               // [heads], added to
};

// Folds the per-token value scales of a page into the softmax weights and quantises them. As FoldKeysArgs with
// t = weight * (scale_t * multiple); offset is what every channel of the run gets.
struct FoldValuesArgs {
  const float* weights;  // [heads][stride]: 128 used
  std::ptrdiff_t stride;
  int heads;
  const std::uint16_t* scale;  // [128] f16
  const std::uint16_t* min;    // [128] f16
  float multiple;
  float center;
  std::int8_t* hi;  // [heads][128]
  std::int8_t* lo;
  float* out_scale;  // [heads]
  float* offset;     // [heads], added to
};

// 16-bit rows: keys or values [tokens][dim] f16.
struct ScoreF16Args {
  const std::uint16_t* keys;
  int tokens;
  int dim;
  const float* queries;  // [heads][query_stride]
  std::ptrdiff_t query_stride;
  int heads;
  float* scores;  // [heads][score_stride]: written
  std::ptrdiff_t score_stride;
};
struct WeighF16Args {
  const std::uint16_t* values;
  int tokens;
  int dim;
  const float* weights;  // [heads][weight_stride]
  std::ptrdiff_t weight_stride;
  int heads;
  float* out;  // [heads][out_stride]: added to
  std::ptrdiff_t out_stride;
};

struct AttendKernels {
  void (*score_codes)(const ScoreArgs&);
  void (*weigh_codes)(const WeighArgs&);
  void (*fold_keys)(const FoldKeysArgs&);
  void (*fold_values)(const FoldValuesArgs&);
  void (*score_f16)(const ScoreF16Args&);
  void (*weigh_f16)(const WeighF16Args&);
  // Largest of n numbers; -infinity for n = 0.
  float (*max)(const float* x, std::size_t n);
  // x = exp(x - top) in place for n numbers <= top; returns their sum. -infinity gives 0. Relative error < 3e-7.
  float (*exp_sum)(float* x, std::size_t n, float top);
};

extern const AttendKernels kAttendScalar;
extern const AttendKernels kAttendAvx2;
extern const AttendKernels kAttendAvx512;
extern const AttendKernels kAttendNeon;

}  // namespace neve::simd
