#include "model/architecture.h"

namespace neve::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", RopePairs::kNeighbours, HeadNorm::kNone},
    {"qwen2", RopePairs::kHalves, HeadNorm::kNone},
    {"qwen3", RopePairs::kHalves, HeadNorm::kQueryAndKey},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

std::string architecture_names() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture.name;
  }
  return names;
}

}  // namespace neve::model
