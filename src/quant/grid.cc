#include "quant/grid.h"

#include "base/float16.h"

namespace neve::quant {
namespace {

std::uint16_t next_down(std::uint16_t half) {
  if (half == 0x0000u) return 0x8001u;
  return static_cast<std::uint16_t>((half & 0x8000u) != 0 ? half + 1 : half - 1);
}

std::uint16_t next_up(std::uint16_t half) {
  if (half == 0x8000u) return 0x0001u;
  return static_cast<std::uint16_t>((half & 0x8000u) != 0 ? half - 1 : half + 1);
}

}  // namespace

std::uint16_t f16_round_down(float x) {
  const std::uint16_t nearest = f16_from_f32(x);
  return f32_from_f16(nearest) > x ? next_down(nearest) : nearest;
}

std::uint16_t f16_round_up(float x) {
  const std::uint16_t nearest = f16_from_f32(x);
  return f32_from_f16(nearest) < x ? next_up(nearest) : nearest;
}

Grid make_grid(float low, float high) {
  Grid grid;
  grid.min = f16_round_down(low);
  const float range = high - f32_from_f16(grid.min);
  grid.scale = range > 0.f ? f16_round_up(range / 255.f) : std::uint16_t{0};
  return grid;
}

bool all_finite(const std::uint16_t* x, std::size_t n) {
  unsigned bad = 0;
  for (std::size_t i = 0; i < n; ++i) bad |= static_cast<unsigned>((x[i] & 0x7c00u) == 0x7c00u);
  return bad == 0;
}

Width width_of(int bits, float clip) {
  if (bits == 8) return {1.f, 127.5f};
  if (bits == 4) return {17.f, 7.5f};
  return {85.f * clip, 1.5f};
}

}  // namespace neve::quant
