// The tensors of a model, where they lie, by their place in the graph.
//
// A matrix whose type has a faster layout (weight_placement.h) is copied into it; everything else stays in the
// memory-mapped file. Rows that are looked up (token embeddings) are always in the file; an output head tied to them
// gets a copy of its own if that is faster. Joining query, key and value, or gate and up, into one matrix was tried: a
// step of one token gains nothing, and a prompt loses a sixth in ggml's tiled product (rows of 12 KiB alias in L1).
//
// Threads: read only after load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/mapped_file.h"
#include "neve/status.h"

namespace neve::model {

// y = x W^T + b. weight: ne [inputs, outputs]; bias: [outputs] f32, or null.
struct Linear {
  ggml_tensor* weight = nullptr;
  ggml_tensor* bias = nullptr;
};

struct LayerWeights {
  ggml_tensor* attention_norm = nullptr;  // [hidden] f32
  ggml_tensor* query_norm = nullptr;      // [key_dim] f32, or null
  ggml_tensor* key_norm = nullptr;        // [key_dim] f32, or null
  Linear query_key_value;                 // where the file has them joined, in this order; or empty and the three below
  Linear query, key, value;
  Linear attention_output;
  ggml_tensor* feed_forward_norm = nullptr;  // [hidden] f32
  Linear gate, up;
  Linear down;
};

class WeightSet {
 public:
  // Errors: kDamaged (a tensor that is missing or has another shape), kUnsupported (a tensor that the architecture does
  // not have, a type that cannot be multiplied), kExhausted (does not fit into the memory that is available; said
  // before anything is loaded).
  static Result<std::unique_ptr<WeightSet>> load(const GgufFile& file, const Hyperparameters& hyperparameters,
                                                 const std::function<void(double)>& progress);
  ~WeightSet();

  ggml_tensor* token_embedding() const { return token_embedding_; }  // ne [hidden, vocabulary]
  ggml_tensor* output_norm() const { return output_norm_; }
  const Linear& output_head() const { return output_head_; }
  ggml_tensor* rope_factors() const { return rope_factors_; }  // [channels/2] f32, or null
  const std::vector<LayerWeights>& layers() const { return layers_; }

  std::int64_t mapped_bytes() const { return mapped_bytes_; }
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  friend class WeightLoader;
  WeightSet() = default;

  MappedFile map_;
  ggml_context* context_ = nullptr;  // tensor structs only
  std::vector<ggml_backend_buffer_t> buffers_;
  ggml_tensor* token_embedding_ = nullptr;
  ggml_tensor* output_norm_ = nullptr;
  ggml_tensor* rope_factors_ = nullptr;
  Linear output_head_;
  std::vector<LayerWeights> layers_;
  std::int64_t mapped_bytes_ = 0, copied_bytes_ = 0;
};

}  // namespace neve::model
