// For tests: keys, values and queries that are a function of (seed, token, layer, head, channel), so that tokens can be
// cut into steps in any way, forked, and repeated.
//
// Bell-shaped, and as in models: keys have channels of very different size and a few with a large mean.
#pragma once

#include <cstdint>

namespace neve::kv {

enum class Row : std::uint64_t { kQuery = 1, kKey = 2, kValue = 3 };

// Steele et al. 2014, splitmix64.
inline std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Mean 0, variance 1, |x| < 3.5: the sum of four uniform numbers.
inline float bell(std::uint64_t bits) {
  const auto part = [&](int i) { return static_cast<int>((bits >> (16 * i)) & 0xffffu); };
  return (static_cast<float>(part(0) + part(1) + part(2) + part(3)) - 131070.f) / 37837.f;
}

inline float token_number(std::uint64_t seed, std::int64_t token, Row row, int layer, int head, int channel) {
  const std::uint64_t place = static_cast<std::uint64_t>(row) << 56 | static_cast<std::uint64_t>(layer) << 40 |
                              static_cast<std::uint64_t>(head) << 24 | static_cast<std::uint64_t>(channel);
  const float noise = bell(scramble(scramble(seed * 0x10001u + static_cast<std::uint64_t>(token)) ^ place));
  if (row == Row::kValue) return noise;
  constexpr float kSizes[8] = {0.1f, 0.2f, 0.3f, 0.5f, 0.8f, 1.2f, 2.f, 3.5f};
  const std::uint64_t of_channel = scramble(place);  // of the model, not of the sequence
  if (row == Row::kQuery) return noise * kSizes[(of_channel >> 8) % 6 + 1];
  const float mean = of_channel % 11 == 0 ? 8.f : 0.f;
  return mean + noise * kSizes[(of_channel >> 8) % 8];
}

}  // namespace neve::kv
