#include "damage/sample.h"

#include <algorithm>
#include <cmath>

namespace neve::damage {

std::int32_t sample_token(std::span<const float> logits, std::mt19937_64& random) {
  const float top = *std::max_element(logits.begin(), logits.end());
  auto weight = [top](float logit) { return std::exp(static_cast<double>(logit) - static_cast<double>(top)); };
  double sum = 0;
  for (const float logit : logits) sum += weight(logit);
  // std::uniform_real_distribution differs between standard libraries; 53 bits of the generator do not.
  double left = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    left -= weight(logits[token]);
    if (left < 0) return static_cast<std::int32_t>(token);
  }
  // Only rounding gets here: the draw was the very end of the distribution.
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace neve::damage
