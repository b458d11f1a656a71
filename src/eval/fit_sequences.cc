#include "eval/fit_sequences.h"

#include "model/peer_llama.h"

namespace neve::eval {
namespace {

// `auto` fills whatever budget it is given; `auto:W` brings its own.
bool takes_budget(const KvSpec& spec) { return spec.mode == KvMode::kAuto && spec.width <= 0; }

constexpr int kMostSequences = 4096;

Result<CachePlan> plan(const Model& model, const FitRequest& request, int sequences) {
  CacheOptions options;
  options.spec = request.spec;
  options.demote = request.demote;
  options.max_tokens = request.tokens;
  options.max_sequences = sequences;
  options.threads = request.threads;
  if (takes_budget(request.spec)) options.budget_bytes = request.memory_bytes;
  return plan_cache(model.info().layers, options, request.tokens, sequences);
}

Result<bool> fits(const Model& model, const FitRequest& request, int sequences) {
  const auto planned = plan(model, request, sequences);
  if (!planned.ok()) {
    if (planned.status().code() == Code::kBudget) return Result<bool>(false);
    return planned.status();
  }
  const bool in_full = planned->capacity_tokens >= request.tokens;
  const std::uint64_t bytes = takes_budget(request.spec) ? planned->least_bytes : planned->bytes;
  return Result<bool>(in_full && bytes <= request.memory_bytes);
}

Result<int> fit_peer(const Model& model, const FitRequest& request) {
  model::PeerOptions options;
  options.cache_type = request.spec.peer_type;
  options.context_tokens = 256;  // the smallest; only its size per token is wanted
  options.threads = request.threads;
  const auto peer = model::PeerLlama::create(model, options);
  if (!peer.ok()) return peer.status();
  const std::uint64_t bytes = (*peer)->kv_bytes_for(request.tokens);
  return bytes > 0 ? static_cast<int>(request.memory_bytes / bytes) : 0;
}

}  // namespace

Result<std::uint64_t> f16_bytes(const Model& model, std::int64_t tokens, int sequences, int threads) {
  const auto spec = parse_kv_spec("f16");
  if (!spec.ok()) return spec.status();
  const auto planned = plan(model, {*spec, Demote::kPage, tokens, 0, threads}, sequences);
  if (!planned.ok()) return planned.status();
  return planned->bytes;
}

Result<int> fit_sequences(const Model& model, const FitRequest& request) {
  if (request.spec.mode == KvMode::kPeer) return fit_peer(model, request);
  int fit = 0, over = 1;
  while (over <= kMostSequences) {
    const auto is_fit = fits(model, request, over);
    if (!is_fit.ok()) return is_fit.status();
    if (!*is_fit) break;
    fit = over;
    over *= 2;
  }
  while (fit + 1 < over) {
    const int middle = fit + (over - fit) / 2;
    const auto is_fit = fits(model, request, middle);
    if (!is_fit.ok()) return is_fit.status();
    (*is_fit ? fit : over) = middle;
  }
  return fit;
}

}  // namespace neve::eval
