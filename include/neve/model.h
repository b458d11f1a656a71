// A language model from a GGUF file: its shape, its words, its weights. Steps are run by neve's own graph
// (src/model/runner.h); attention is neve's KvCache.
//
// Threads: a loaded model is read only; any number of threads may use its const members.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "neve/kv_cache.h"
#include "neve/status.h"

namespace neve {

enum class Weights {
  kFile,  // as stored
  kF32,   // converted once to f32, kept under the cache folder, keyed by the source's fingerprint
};

struct LoadOptions {
  Weights weights = Weights::kFile;
  int threads = 0;       // 0 = as many as the machine has cores
  bool verbose = false;  // llama.cpp's own talk on stderr
  std::function<void(double fraction)> progress;
};

// What the file says, known without loading the weights.
struct ModelInfo {
  std::string path, name, architecture, fingerprint;
  std::int64_t context_tokens = 0;  // trained for
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t weights_bytes = 0;
  std::vector<LayerGeometry> layers;  // attention layers, in order
};

// Reads the header only. Errors: kNotFound, kDamaged (with the offset), kUnsupported (names the architecture and
// lists those that work).
Result<ModelInfo> read_model_info(const std::string& path);

class Model {
 public:
  // Errors: as read_model_info; kExhausted when the weights do not fit into memory (said before they are loaded).
  static Result<std::unique_ptr<Model>> load(const std::string& path, LoadOptions options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelInfo& info() const;
  int threads() const;
  // Bytes of weights that this process holds: memory-mapped, and copied into faster layouts.
  std::int64_t mapped_bytes() const;
  std::int64_t copied_bytes() const;

  Result<std::vector<std::int32_t>> tokenize(std::string_view text, bool with_specials) const;
  std::string token_text(std::int32_t token) const;
  bool is_end(std::int32_t token) const;
  // The prompt of a conversation by the model's own template; roles "system", "user", "assistant".
  struct Message {
    std::string role, text;
  };
  Result<std::string> chat_prompt(std::span<const Message> messages) const;
  bool has_chat_template() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve
