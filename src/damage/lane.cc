#include "damage/lane.h"

#include <algorithm>
#include <cmath>

#include "damage/summary.h"

namespace neve::damage {

Status Score::add(std::span<const RowDamage> rows, std::span<const std::int32_t> next) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!std::isfinite(rows[row].kl)) {
      return Status(Code::kNotFinite, "the logits after token " + std::to_string(kl.size()) + " are not finite");
    }
    // Rounding may leave a hair below zero where both distributions are the same.
    kl.push_back(std::max(rows[row].kl, 0.0));
    same_top += rows[row].same_top ? 1 : 0;
    if (next[row] >= 0) {
      nll += rows[row].nll;
      ++nll_count;
    }
  }
  return ok_status();
}

Result<Lane> make_lane(const Model& model, const KvSpec& spec, const DamageOptions& options, std::int64_t tokens,
                       int threads) {
  Lane lane;
  lane.spec = spec;
  if (spec.mode == KvMode::kPeer) {
    model::PeerOptions peer_options;
    peer_options.cache_type = spec.peer_type;
    peer_options.context_tokens = tokens;
    peer_options.threads = threads;
    auto peer = model::PeerLlama::create(model, peer_options);
    if (!peer.ok()) return peer.status();
    lane.peer = std::move(*peer);
    return lane;
  }
  CacheOptions cache_options;
  cache_options.spec = spec;
  cache_options.demote = options.demote;
  cache_options.budget_bytes = spec.mode == KvMode::kAuto && spec.width <= 0 ? options.budget_bytes : 0;
  cache_options.max_tokens = tokens;
  cache_options.threads = threads;
  cache_options.schedule = CodingSchedule::kAtBoundary;
  auto cache = KvCache::create(model.info().layers, cache_options);
  if (!cache.ok()) return Status(cache.status().code(), spec.text + ": " + cache.status().message());
  lane.cache = std::move(*cache);
  const auto sequence = lane.cache->add_sequence();
  if (!sequence.ok()) return sequence.status();
  lane.sequence = *sequence;
  return lane;
}

std::int64_t values_held(std::span<const LayerGeometry> layers, std::int64_t tokens) {
  std::int64_t values = 0;
  for (const LayerGeometry& layer : layers) {
    if (layer.shares_layer >= 0) continue;
    const std::int64_t held = layer.sliding_window > 0 ? std::min<std::int64_t>(tokens, layer.sliding_window) : tokens;
    values += held * layer.kv_heads * (layer.key_dim + layer.value_dim);
  }
  return values;
}

DamageRow make_row(const Lane& lane, const RowContext& context) {
  DamageRow row;
  row.engine = lane.peer ? "llama.cpp" : "neve";
  row.kv = lane.spec.text;
  row.tokens = lane.tokens();
  row.bytes = lane.peer ? lane.peer->kv_bytes_for(row.tokens) : lane.cache->memory().bytes;
  const std::int64_t values = values_held(context.layers, row.tokens);
  row.bits_per_value = values > 0 ? static_cast<double>(row.bytes) * 8 / static_cast<double>(values) : 0;
  const Score& score = lane.score;
  row.kl_mean = mean(score.kl);
  row.kl_median = quantile(score.kl, 0.5);
  row.kl_p99 = quantile(score.kl, 0.99);
  row.top1 = row.tokens > 0 ? static_cast<double>(score.same_top) / static_cast<double>(row.tokens) : 0;
  if (score.nll_count > 0) {
    row.nll = score.nll / static_cast<double>(score.nll_count);
    row.perplexity = std::exp(row.nll);
    // The first token is given, not predicted.
    const auto& before = context.bytes_before;
    const std::int64_t bytes = before[static_cast<std::size_t>(score.nll_count) + 1] - before[1];
    row.bits_per_byte = bytes > 0 ? score.nll / std::log(2.0) / static_cast<double>(bytes) : 0;
  }
  row.kl_by_position = means_of_runs(score.kl, context.position_step);
  return row;
}

}  // namespace neve::damage
