// For tests: reads a coded block one number at a time, straight from the documented layout, in double precision.
//
// Shares no code with the coder or the kernels. What it follows: simd/attend_kernels.h (order of codes), quant/grid.h
// and quant/shift.h (numbers of codes).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/float16.h"
#include "neve/kv_spec.h"
#include "quant/block_layout.h"

namespace neve::quant {

// Code `index` of those that share a column of bytes: the first 1/parts of all stand in the lowest bits, and so on.
inline int packed_code(std::uint8_t byte, int part, int bits) { return byte / (1 << (part * bits)) % (1 << bits); }

// keys: [quad][token][4 channels]; tokens t, t + 16 * bits, ... share a byte.
inline int key_code(const std::uint8_t* codes, const KeyRun& run, int stored_channel, int token) {
  const int rows = 16 * run.bits, quad = stored_channel / 4 - run.first_quad;
  const std::size_t at = static_cast<std::size_t>((quad * rows + token % rows) * 4 + stored_channel % 4);
  return packed_code(codes[run.offset + at], token / rows, run.bits);
}

// values: [4 tokens][channel][4 tokens]; token groups g, g + 4 * bits, ... share a byte.
inline int value_code(const std::uint8_t* codes, const ValueLayout& layout, int channel, int token) {
  const int rows = 4 * layout.bits, group = token / 4;
  const std::size_t at =
      static_cast<std::size_t>(group % rows) * layout.row_bytes + static_cast<std::size_t>(channel * 4 + token % 4);
  return packed_code(codes[at], group / rows, layout.bits);
}

// The number of a code on the grid (scale, min) after the shifts that led to its width.
inline double number_of_code(int code, int bits, Shift shift, double clip, double scale, double min) {
  const bool doubling = shift == Shift::kDirect || shift == Shift::kModified;
  if (bits == 8) return min + scale * code;
  if (bits == 4) return min + scale * (doubling ? 16 : 17) * code;
  if (doubling) return min + scale * 64 * code;
  if (shift == Shift::kEquivalent) return min + scale * 85 * code;
  return min + scale * 127.5 * (1 - clip) + scale * 85 * clip * code;
}

inline double half_at(const std::uint16_t* x, std::ptrdiff_t at) { return static_cast<double>(f32_from_f16(x[at])); }

// Keys of a block as numbers, [tokens][channels], in the head's own channel order.
inline std::vector<double> read_keys(const std::uint8_t* codes, const KeyLayout& layout, const std::uint16_t* scale,
                                     const std::uint16_t* min, int tokens, Shift shift, double clip) {
  std::vector<double> out(static_cast<std::size_t>(tokens * layout.channels));
  for (const KeyRun& run : layout.runs) {
    for (int c = run.first_quad * 4; c < (run.first_quad + run.quads) * 4 && c < layout.channels; ++c) {
      const int channel = layout.order.empty() ? c : layout.order[static_cast<std::size_t>(c)];
      for (int t = 0; t < tokens; ++t) {
        const std::ptrdiff_t slot = layout.groups == 0 ? c : run.group * kPageTokens + t;
        out[static_cast<std::size_t>(t * layout.channels + channel)] =
            run.bits == 0 ? half_at(min, slot)
                          : number_of_code(key_code(codes, run, c, t), run.bits, shift, clip, half_at(scale, slot),
                                           half_at(min, slot));
      }
    }
  }
  return out;
}

// x [n] times the orthonormal Hadamard matrix of order n, its own inverse: H(2n) = (H H; H -H) / sqrt 2.
inline std::vector<double> hadamard(std::vector<double> x) {
  for (std::size_t half = x.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & half) != 0) continue;
      const double a = x[i], b = x[i + half];
      x[i] = (a + b) * std::sqrt(0.5);
      x[i + half] = (a - b) * std::sqrt(0.5);
    }
  }
  return x;
}

// Rows [tokens][channels], each rotated over successive runs of `rotated` channels.
inline void rotate_heads(std::vector<double>* rows, int tokens, int channels, int rotated) {
  if (rotated == 0) return;
  for (int t = 0; t < tokens; ++t) {
    for (int first = 0; first < channels; first += rotated) {
      const auto begin = rows->begin() + t * channels + first;
      const std::vector<double> turned = hadamard(std::vector<double>(begin, begin + rotated));
      std::copy(turned.begin(), turned.end(), begin);
    }
  }
}

// Values of a block as numbers, [tokens][channels]; still rotated.
inline std::vector<double> read_values(const std::uint8_t* codes, const ValueLayout& layout, const std::uint16_t* scale,
                                       const std::uint16_t* min, int tokens, Shift shift, double clip) {
  std::vector<double> out(static_cast<std::size_t>(tokens * layout.channels));
  for (std::size_t g = 0; g < layout.runs.size(); ++g) {
    const ValueRun& run = layout.runs[g];
    for (int c = run.first_channel; c < run.first_channel + run.channels && c < layout.channels; ++c) {
      for (int t = 0; t < tokens; ++t) {
        const std::ptrdiff_t slot = static_cast<std::ptrdiff_t>(g) * kPageTokens + t;
        out[static_cast<std::size_t>(t * layout.channels + c)] = number_of_code(
            value_code(codes, layout, c, t), layout.bits, shift, clip, half_at(scale, slot), half_at(min, slot));
      }
    }
  }
  return out;
}

}  // namespace neve::quant
