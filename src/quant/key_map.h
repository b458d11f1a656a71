// Graded keys: which channels of a key head stand together in quads, and how wide each quad is on each rung.
//
// Importance of a channel: I_c = E[q_c^2] * E[range_c^2] (docs/graded-keys.md). Channels are sorted by it, so quads of
// equal width are contiguous: runs of 8, 4, 2 and 0 bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neve::quant {

// Quads by width, in stored order: the first `at8` have 8 bits, the next `at4` 4, the next `at2` 2, the rest none.
struct QuadWidths {
  int at8 = 0, at4 = 0, at2 = 0;
};

// Channels by falling importance; equal importance: the lower channel first. importance: [channels].
std::vector<std::uint16_t> order_channels(std::span<const float> importance);

// The widths that minimise the expected error of a score, sum of width bits over quads <= total_bits, no quad wider
// than in `ceiling` (pass {quads, 0, 0} for none). Exact: all combinations are tried. Cost: O(quads^2).
// quad_importance: [quads], falling; all 0 = all alike. The error of a quad is importance * e(bits),
// e = 1/(2^bits - 1)^2, and for no bits the variance of a bell-shaped channel with that range.
QuadWidths allocate_widths(std::span<const float> quad_importance, int total_bits, QuadWidths ceiling);

}  // namespace neve::quant
