#include "quant/block_layout.h"

#include <algorithm>

namespace neve::quant {
namespace {

int group_count(int channels, int group) { return (channels + group - 1) / group; }

std::size_t run_bytes(int quads, int bits) {
  return static_cast<std::size_t>(quads) * 64 * static_cast<std::size_t>(bits);
}

}  // namespace

std::size_t key_code_bytes(int channels, int bits) { return run_bytes(padded_channels(channels) / 4, bits); }

std::size_t key_scale_bytes(int channels, int group) {
  const int count = group == 0 ? padded_channels(channels) : group_count(channels, group) * kPageTokens;
  return static_cast<std::size_t>(count) * 4;
}

std::size_t value_scale_bytes(int channels, int group) {
  return static_cast<std::size_t>(group_count(channels, group)) * kPageTokens * 4;
}

KeyLayout uniform_key_layout(int channels, int bits, int group) {
  KeyLayout layout;
  layout.channels = channels;
  const int quads = padded_channels(channels) / 4;
  if (group == 0) {
    layout.runs.push_back({bits, 0, quads, 0, 0});
  } else {
    layout.groups = group_count(channels, group);
    for (int g = 0; g < layout.groups; ++g) {
      const int first = g * group / 4, last = std::min((g + 1) * group / 4, quads);
      layout.runs.push_back({bits, first, last - first, run_bytes(first, bits), g});
    }
  }
  layout.code_bytes = run_bytes(quads, bits);
  return layout;
}

KeyLayout graded_key_layout(int channels, std::vector<std::uint16_t> order, const QuadWidths& widths) {
  KeyLayout layout;
  layout.channels = channels;
  layout.order = std::move(order);
  const int quads = padded_channels(channels) / 4;
  const int counts[4] = {widths.at8, widths.at4, widths.at2, quads - widths.at8 - widths.at4 - widths.at2};
  const int bits[4] = {8, 4, 2, 0};
  int quad = 0;
  for (int i = 0; i < 4; ++i) {
    if (counts[i] == 0) continue;
    layout.runs.push_back({bits[i], quad, counts[i], layout.code_bytes, 0});
    layout.code_bytes += run_bytes(counts[i], bits[i]);
    quad += counts[i];
  }
  return layout;
}

ValueLayout value_layout(int channels, int bits, int group, int rotate) {
  ValueLayout layout;
  layout.channels = channels;
  layout.bits = bits;
  const int padded = padded_channels(channels);
  for (int first = 0; first < padded; first += group) layout.runs.push_back({first, std::min(group, padded - first)});
  if (rotate != 0) {
    const int power = channels & -channels;
    layout.rotated = power >= 16 ? power : 0;
  }
  layout.row_bytes = static_cast<std::size_t>(padded) * 4;
  layout.code_bytes = layout.row_bytes * static_cast<std::size_t>(4 * bits);
  return layout;
}

}  // namespace neve::quant
