// One cache of a lockstep run, neve's or llama.cpp's, and what it has scored so far.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "damage/divergence.h"
#include "model/peer_llama.h"
#include "neve/damage.h"
#include "neve/kv_cache.h"

namespace neve::damage {

// What the rows of a lane add up to.
struct Score {
  std::vector<double> kl;  // one per position
  double nll = 0;          // sum over the positions whose next token is known
  std::int64_t nll_count = 0;
  std::int64_t same_top = 0;

  // Errors: kNotFinite names the position whose logits are not numbers.
  Status add(std::span<const RowDamage> rows, std::span<const std::int32_t> next);
};

// Exactly one of `cache` and `peer` is set.
struct Lane {
  KvSpec spec;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<model::PeerLlama> peer;
  int sequence = 0;
  bool ended = false;  // its budget is full: it reads no further
  Score score;

  std::int64_t tokens() const { return static_cast<std::int64_t>(score.kl.size()); }
};

// An empty cache for one sequence of `tokens` tokens. Pages are coded at once at their boundary, all in one step: what
// is measured does not depend on when the work is done.
Result<Lane> make_lane(const Model& model, const KvSpec& spec, const DamageOptions& options, std::int64_t tokens,
                       int threads);

// Key and value elements that stand for `tokens` tokens: the denominator of bits_per_value. Layers that read another
// layer's cache hold none; a sliding window holds no more than itself.
std::int64_t values_held(std::span<const LayerGeometry> layers, std::int64_t tokens);

// What rows are made with besides the lane itself.
struct RowContext {
  std::span<const LayerGeometry> layers;
  std::vector<std::int64_t> bytes_before;  // [tokens + 1]: bytes of the text before each token
  std::int64_t position_step = 1;
};
DamageRow make_row(const Lane& lane, const RowContext& context);

}  // namespace neve::damage
