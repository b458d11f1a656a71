// The architectures that neve's own graph knows, and in what they differ. All three are pre-norm transformers with
// RMS norms, RoPE, grouped-query attention and a gated SiLU feed-forward; biases and tied embeddings follow from which
// tensors a file holds.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace neve::model {

// How RoPE pairs the channels of a head: neighbours (2i, 2i+1), as `llama` files are permuted for, or halves (i, i+d/2).
enum class RopePairs { kNeighbours, kHalves };

// RMS norm over each query and key head before RoPE.
enum class HeadNorm { kNone, kQueryAndKey };

struct Architecture {
  const char* name;  // general.architecture; also the prefix of its keys
  RopePairs rope_pairs;
  HeadNorm head_norm;
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);
// "llama, qwen2, qwen3"
std::string architecture_names();

}  // namespace neve::model
