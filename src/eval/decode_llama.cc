#include "eval/decode_engine.h"

namespace neve::eval {
namespace {

class LlamaDecode final : public DecodeEngine {
 public:
  LlamaDecode(std::unique_ptr<model::PeerLlama> peer, const DecodeSetup& setup)
      : peer_(std::move(peer)), sequences_(setup.sequences), tokens_(setup.depth) {}

  Status decode(std::span<const std::int32_t> tokens) override {
    ++tokens_;
    return peer_->step_all(tokens).status();
  }

  Status prefill(std::span<const std::int32_t> tokens) override {
    tokens_ += std::ssize(tokens);
    return peer_->step(0, tokens, true).status();
  }

  // llama.cpp allocates for the whole context; what the tokens of now take is the fair figure.
  std::uint64_t kv_bytes() const override {
    return peer_->kv_bytes_for(tokens_) * static_cast<std::uint64_t>(sequences_);
  }

 private:
  std::unique_ptr<model::PeerLlama> peer_;
  int sequences_;
  std::int64_t tokens_;  // of each sequence
};

}  // namespace

Result<std::unique_ptr<DecodeEngine>> make_llama_decode(const Model& model, const DecodeSetup& setup) {
  model::PeerOptions options;
  options.cache_type = setup.spec.peer_type;
  options.context_tokens = (setup.depth + setup.room) * setup.sequences;
  options.sequences = setup.sequences;
  options.threads = setup.threads;
  options.flash = setup.flash;
  auto peer = model::PeerLlama::create(model, options);
  if (!peer.ok()) return peer.status();
  if (setup.depth > 0) {
    for (int sequence = 0; sequence < setup.sequences; ++sequence) {
      const std::uint64_t seed = setup.seed + static_cast<std::uint64_t>(sequence);
      NEVE_RETURN_IF_ERROR((*peer)->fill_synthetic(sequence, setup.depth, seed));
    }
  }
  return std::unique_ptr<DecodeEngine>(std::make_unique<LlamaDecode>(std::move(*peer), setup));
}

}  // namespace neve::eval
