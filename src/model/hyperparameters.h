// The numbers of a model that its graph is built from, read and checked from the header of its file.
#pragma once

#include <cstdint>
#include <vector>

#include "model/architecture.h"
#include "model/gguf_file.h"
#include "neve/kv_cache.h"
#include "neve/status.h"

namespace neve::model {

// Rotary position embedding, in the terms of ggml_rope_ext. Scaling by a factor f is scale = 1/f; YaRN (Peng et al.
// 2023) mixes it with no scaling by frequency: ext_factor 1, between the corrections beta_fast and beta_slow.
// Per-frequency factors (Llama 3) are a tensor of the file, rope_freqs.weight.
struct Rope {
  RopePairs pairs = RopePairs::kNeighbours;
  int channels = 0;  // of a head that rotate; the rest pass
  int original_context = 0;
  float base = 10000.f;
  float scale = 1.f;
  float ext_factor = 0.f;
  float attn_factor = 1.f;
  float beta_fast = 32.f;
  float beta_slow = 1.f;
};

struct Hyperparameters {
  const Architecture* architecture = nullptr;
  std::int64_t context_tokens = 0;
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::vector<std::int64_t> feed_forward;  // [layers]
  std::vector<LayerGeometry> attention;    // [layers]
  float norm_epsilon = 0.f;
  Rope rope;

  int layers() const { return static_cast<int>(attention.size()); }
};

// Errors: kUnsupported names the architecture or the feature that neve does not do; kDamaged: a key that is missing, of
// another type, or out of range.
Result<Hyperparameters> read_hyperparameters(const GgufFile& file);

}  // namespace neve::model
