// What `bench decode` measures: a whole model with filled caches, in neve and in llama.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "model/peer_llama.h"
#include "model/runner.h"
#include "neve/bench.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve::eval {

// The state that a sample starts from.
struct DecodeSetup {
  KvSpec spec;
  Demote demote = Demote::kPage;
  std::uint64_t budget_bytes = 0;  // 0 = none
  std::int64_t depth = 0;          // tokens in each sequence
  std::int64_t room = 0;           // tokens that each sequence will get on top
  int sequences = 1;
  int threads = 1;
  std::uint64_t seed = 1;
  model::FlashAttention flash = model::FlashAttention::kOn;  // llama.cpp's
};

class DecodeEngine {
 public:
  virtual ~DecodeEngine() = default;
  // One token for every sequence: [sequences].
  virtual Status decode(std::span<const std::int32_t> tokens) = 0;
  // Tokens for the first sequence, as one prompt; logits of the last.
  virtual Status prefill(std::span<const std::int32_t> tokens) = 0;
  virtual std::uint64_t kv_bytes() const = 0;  // held now
};

// `runner` is shared by all engines of a benchmark and must outlive them.
Result<std::unique_ptr<DecodeEngine>> make_neve_decode(const Model& model, model::Runner* runner,
                                                       const DecodeSetup& setup);
Result<std::unique_ptr<DecodeEngine>> make_llama_decode(const Model& model, const DecodeSetup& setup);

}  // namespace neve::eval
