#include "quant/shift.h"

namespace neve::quant {

simd::NarrowRule narrow_rule(Shift shift, float clip) {
  switch (shift) {
    case Shift::kDirect:
      return {1, 0, 4, {4, 8, 12}};
    case Shift::kModified:
      return {1, 8, 4, {2, 6, 10}};
    case Shift::kEquivalent:
      return {241, 8, 12, {3, 8, 13}};
    case Shift::kClipped:
      break;
  }
  simd::NarrowRule rule;
  const float step = 5.f * clip;
  const float threshold[3] = {7.5f - step, 7.5f, 7.5f + step};
  for (int i = 0; i < 3; ++i) {
    int code = 0;
    while (static_cast<float>(code) <= threshold[i]) ++code;
    rule.threshold[i] = static_cast<std::uint8_t>(code);
  }
  return rule;
}

Width shifted_width(int bits, Shift shift, float clip) {
  if (bits == 8 || shift == Shift::kEquivalent) return width_of(bits, 1.f);
  if (shift == Shift::kClipped) return width_of(bits, clip);
  // number = min + scale * 2^(8 - bits) * code, so code 127.5 / 2^(8 - bits) stands in the middle of the 8-bit range.
  const float multiple = bits == 4 ? 16.f : 64.f;
  return {multiple, 127.5f / multiple};
}

}  // namespace neve::quant
