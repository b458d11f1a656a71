// Where the codes of a page's key or value block lie, on one rung.
//
// A block covers 128 tokens of one head. Keys are runs of quads of equal width, values runs of channels that share their
// per-token scales; see simd/attend_kernels.h for the order of codes inside a run. A channel count that is no multiple
// of 4 is padded, and the padding is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "quant/key_map.h"

namespace neve::quant {

inline constexpr int kPageTokens = 128;

// Channels after padding to whole quads.
constexpr int padded_channels(int channels) { return (channels + 3) / 4 * 4; }

struct KeyRun {
  int bits = 0;        // 8, 4, 2; 0 = the page mean of each channel stands in the minimum's slot
  int first_quad = 0;  // in stored order
  int quads = 0;
  std::size_t offset = 0;  // bytes from the block's start
  int group = 0;           // per-token scales: which; per-channel scales: 0
};

struct KeyLayout {
  int channels = 0;                  // of the head, unpadded
  int groups = 0;                    // of per-token scales; 0 = scales per channel
  std::vector<std::uint16_t> order;  // stored position -> channel, [channels]; empty = as they are
  std::vector<KeyRun> runs;
  std::size_t code_bytes = 0;
};

struct ValueRun {
  int first_channel = 0;
  int channels = 0;  // a multiple of 4
};

struct ValueLayout {
  int channels = 0;
  int bits = 0;
  int rotated = 0;             // channels under the Hadamard rotation, a power of two; 0 = none
  std::vector<ValueRun> runs;  // one per group of channels with its own per-token scales
  std::size_t row_bytes = 0;   // one group of 4 tokens
  std::size_t code_bytes = 0;
};

// Keys with one width. group = 0: scales per channel; else per token over at most `group` channels.
KeyLayout uniform_key_layout(int channels, int bits, int group);

// Graded keys, scales per channel. order: [channels].
KeyLayout graded_key_layout(int channels, std::vector<std::uint16_t> order, const QuadWidths& widths);

// Values, per-token scales over at most `group` channels. rotate: 1 = rotate over the largest power of two that divides
// `channels`, where that is at least 16.
ValueLayout value_layout(int channels, int bits, int group, int rotate);

// Bytes of codes, scales and minima (f16 each) of a block.
std::size_t key_code_bytes(int channels, int bits);
std::size_t key_scale_bytes(int channels, int group);  // group as in uniform_key_layout
std::size_t value_scale_bytes(int channels, int group);

}  // namespace neve::quant
