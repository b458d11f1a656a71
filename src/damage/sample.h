// Draws the next token at temperature 1: from the model's distribution as it is.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace neve::damage {

// logits: [vocabulary]. Deterministic for logits and the state of `random`, which moves on by one draw.
std::int32_t sample_token(std::span<const float> logits, std::mt19937_64& random);

}  // namespace neve::damage
