// Contract of the tile kernels of prefill: one page expanded to f32 that stays in cache, and small matrix products.
//
// Float results agree between ISAs to 1e-5 relative to the sum of absolute terms. No alignment is required; kernels
// allocate nothing and touch nothing beyond the counts given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neve::simd {

// c[r][j] = (accumulate ? c[r][j] : 0) + sum_k a[r][k] * b[k][j], r < rows, j < columns, k < depth.
struct MultiplyArgs {
  const float* a;
  std::ptrdiff_t a_stride;
  const float* b;
  std::ptrdiff_t b_stride;
  float* c;
  std::ptrdiff_t c_stride;
  int rows, columns, depth;
  int accumulate;
};

// Codes of one run as numbers, laid out for a product. A word is 4 codes of one token (keys) or channel (values):
// keys   [quads][token rows][4 channels]  -> out [4*quads][out_stride]: channel-major, 128 tokens each
// values [token rows][channels][4 tokens] -> out [128][out_stride]: token-major, `channels` each
// number = code * (scale * multiple) + (min + (127.5 - center * multiple) * scale), scale and min f16.
struct ExpandArgs {
  const std::uint8_t* codes;
  int bits;
  int count;                   // keys: quads; values: channels
  std::ptrdiff_t row_bytes;    // values: bytes from one group of 4 tokens to the next
  const std::uint16_t* scale;  // [4*quads], or [128] if scale_per_token
  const std::uint16_t* min;
  int scale_per_token;
  float multiple, center;
  float* out;
  std::ptrdiff_t out_stride;
};

// Sizes of the stack tiles inside the kernels: a page of tokens, and the widest head.
inline constexpr int kTileTokens = 128;
inline constexpr int kTileChannels = 576;

struct TileKernels {
  void (*multiply)(const MultiplyArgs&);
  void (*expand_keys)(const ExpandArgs&);
  void (*expand_values)(const ExpandArgs&);  // scale_per_token
  // f16 rows [tokens][dim] -> f32 out[dim][out_stride], tokens used of each.
  void (*transpose_f16)(const std::uint16_t* x, int tokens, int dim, float* out, std::ptrdiff_t out_stride);
};

extern const TileKernels kTileScalar;
extern const TileKernels kTileAvx2;
extern const TileKernels kTileAvx512;
extern const TileKernels kTileNeon;

}  // namespace neve::simd
