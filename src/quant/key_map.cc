#include "quant/key_map.h"

#include <algorithm>
#include <numeric>

namespace neve::quant {
namespace {

// Expected squared error of a code, in twelfths of the squared range. At 0 bits: 128 normal samples have a range of
// 5.2 standard deviations, so the variance is 12 / 5.2^2 = 0.44 of that unit.
constexpr double kError8 = 1.0 / (255.0 * 255.0), kError4 = 1.0 / (15.0 * 15.0), kError2 = 1.0 / (3.0 * 3.0);
constexpr double kError0 = 0.44;

}  // namespace

std::vector<std::uint16_t> order_channels(std::span<const float> importance) {
  std::vector<std::uint16_t> order(importance.size());
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint16_t a, std::uint16_t b) { return importance[a] > importance[b]; });
  return order;
}

QuadWidths allocate_widths(std::span<const float> quad_importance, int total_bits, QuadWidths ceiling) {
  const int quads = static_cast<int>(quad_importance.size());
  std::vector<double> sum(static_cast<std::size_t>(quads) + 1, 0.0);
  for (int i = 0; i < quads; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sum[at + 1] = sum[at] + static_cast<double>(quad_importance[at]);
  }
  if (!(sum.back() > 0.0)) std::iota(sum.begin(), sum.end(), 0.0);  // nothing is known: all quads alike
  const int most4 = ceiling.at8 + ceiling.at4, most2 = most4 + ceiling.at2;
  QuadWidths best;
  double least = -1.0;
  for (int at8 = 0; at8 <= ceiling.at8 && 8 * at8 <= total_bits; ++at8) {
    for (int end4 = at8; end4 <= most4 && 8 * at8 + 4 * (end4 - at8) <= total_bits; ++end4) {
      const int left = total_bits - 8 * at8 - 4 * (end4 - at8);
      const int end2 = std::min(most2, end4 + left / 2);
      const auto part = [&](int from, int to) {
        return sum[static_cast<std::size_t>(to)] - sum[static_cast<std::size_t>(from)];
      };
      const double error =
          part(0, at8) * kError8 + part(at8, end4) * kError4 + part(end4, end2) * kError2 + part(end2, quads) * kError0;
      if (least < 0.0 || error < least) {
        least = error;
        best = {at8, end4 - at8, end2 - end4};
      }
    }
  }
  return best;
}

}  // namespace neve::quant
