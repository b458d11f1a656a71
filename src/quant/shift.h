// The rules by which codes become narrower: PM-KVQ's equivalent right shift (app. D), its two worse ones, and the
// clipped 4 -> 2.
//
// equivalent  q' = round(q / (2^b + 1)); equals dequantise and requantise, and never ties
// direct      q' = q >> b                modified  q' = min((q + 2^(b-1)) >> b, 2^b - 1); both with scale * 2^b
// clipped     4 -> 2 onto levels 7.5 +- 0.5*step, +- 1.5*step of the 4-bit codes, step = 5c; 8 -> 4 is equivalent
#pragma once

#include "neve/kv_spec.h"
#include "quant/grid.h"
#include "simd/coding_kernels.h"

namespace neve::quant {

// clip: c of the clipped shift, in (0, 1]; unused by the others.
simd::NarrowRule narrow_rule(Shift shift, float clip);

// Grid of `bits`-wide codes that came by `shift` from 8 bits: `number = min + 127.5*scale + multiple*scale*(code - center)`
// holds for all of them. For the direct and modified shifts (scale * 2^b) the middle is not that of the code range, so
// center differs.
Width shifted_width(int bits, Shift shift, float clip);

}  // namespace neve::quant
