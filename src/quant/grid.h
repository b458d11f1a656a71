// The 8-bit grid of a group: an f16 minimum and an f16 scale, from which the grids of 4 and 2 bits follow.
//
// number = min + scale * code (8 bits); scale*17 (4 bits); scale*85 (2 bits); clipped 2 bits: scale*85*c and
// min + scale*127.5*(1 - c). All have the same middle, min + 127.5 * scale.
// Exact: the minimum is rounded down and the scale up, so no code is clamped. A group of equal f16 numbers has scale 0
// and is exact.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neve::quant {

// Largest f16 <= x, smallest f16 >= x. Requires: x finite. Infinite where x is beyond the largest f16.
std::uint16_t f16_round_down(float x);
std::uint16_t f16_round_up(float x);

struct Grid {
  std::uint16_t scale = 0;  // f16
  std::uint16_t min = 0;    // f16
};

// Grid of 8-bit codes for numbers in [low, high]. Requires: low <= high, finite.
Grid make_grid(float low, float high);

// True if no f16 of x[n] is NaN or infinite.
bool all_finite(const std::uint16_t* x, std::size_t n);

// What stands for the scale of `bits`-wide codes: multiple of the stored scale, and the middle of the code range.
struct Width {
  float multiple;  // 1, 17, 85, or 85 * clip
  float center;    // 127.5, 7.5, 1.5
};
// clip: the factor c of clipped 2-bit codes, 1 = not clipped. bits: 8, 4 or 2.
Width width_of(int bits, float clip);

}  // namespace neve::quant
