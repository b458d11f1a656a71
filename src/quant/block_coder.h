// Codes a page's key or value block on the 8-bit grid and makes codes narrower, rung by rung.
//
// Exact: coding straight to a rung is the 8-bit coding followed by the same shifts, so a demoted block equals a directly
// coded one bit for bit. Scales and minima are written once, when the block is coded; only channels whose quad falls to
// 0 bits get scale 0 and the mean of their codes for a minimum.
// Thread rules: a BlockCoder is used by one thread at a time. Cost: about 1 ns per value on one core.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/block_layout.h"
#include "quant/shift.h"
#include "simd/isa.h"

namespace neve::quant {

// Why a block could not be coded: the first token (of the block) and channel that is not finite; or the token whose
// rotated values are beyond f16, and the first channel of that group.
struct NotFinite {
  int token = 0;
  int channel = 0;
};

// Scales and minima of a block: f16, per channel [padded channels] or per token [groups][128].
struct BlockScales {
  std::uint16_t* scale = nullptr;
  std::uint16_t* min = nullptr;
};

enum class CodeResult { kDone, kNotFinite };

class BlockCoder {
 public:
  // most_channels: the widest head that will be coded.
  BlockCoder(const simd::Kernels& kernels, int most_channels);

  // keys: [tokens][channels] f16, 1 <= tokens <= 128. codes: [padded channels * 128] at 8 bits, in the order and
  // grouping of `layout` (its widths do not matter). Slots of missing tokens get code 0.
  CodeResult code_keys(const std::uint16_t* keys, int tokens, const KeyLayout& layout, std::uint8_t* codes,
                       BlockScales scales, NotFinite* where);
  CodeResult code_values(const std::uint16_t* values, int tokens, const ValueLayout& layout, std::uint8_t* codes,
                         BlockScales scales, NotFinite* where);

  // From one rung to the next; widths may stay, halve, fall from 8 to 2, or to 0. `tokens` as when coded.
  void narrow_keys(const KeyLayout& from, const std::uint8_t* from_codes, const KeyLayout& to, std::uint8_t* to_codes,
                   int tokens, Shift shift, float clip, BlockScales scales);
  void narrow_values(const ValueLayout& from, const std::uint8_t* from_codes, const ValueLayout& to,
                     std::uint8_t* to_codes, Shift shift, float clip);

 private:
  // tile_ = numbers [tokens][channels] as f32, channel-major. False and where if one is not finite.
  bool load(const std::uint16_t* numbers, int tokens, int channels, NotFinite* where);
  // codes_ from tile_: one grid per channel, rows in the stored order of `layout`.
  CodeResult code_channels(const KeyLayout& layout, int tokens, BlockScales scales, NotFinite* where);
  // codes_ from tile_: one grid per token over some channels; `scales` of that group.
  CodeResult code_tokens(int first_channel, int channels, int tokens, BlockScales scales, NotFinite* where);

  const simd::Kernels& kernels_;
  std::vector<float> tile_;          // [channels][tokens]
  std::vector<std::uint8_t> codes_;  // [padded channels][128]
  std::vector<float> low_, high_;    // of groups
};

}  // namespace neve::quant
