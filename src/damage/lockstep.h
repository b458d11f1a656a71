// Reads one text with many caches at once, chunk by chunk, and scores every position against the 16-bit reference.
//
// A chunk has at most 128 tokens and ends at the next coding boundary of any cache. The reference and neve's caches
// are parts of one graph run as far as the memory for logits allows; the peers follow, one after another; last comes
// the noise lane, a 16-bit cache that gets each chunk in two pieces of unequal length.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "damage/divergence.h"
#include "damage/lane.h"
#include "model/runner.h"

namespace neve::damage {

inline constexpr std::int64_t kChunkTokens = 128;

// Rows of logits of one graph run: as many as kLogitBytes hold, but a whole chunk, and no more than speeds up products.
inline constexpr std::int64_t kLogitBytes = 256 << 20;
inline constexpr std::int64_t kMostRows = 1024;
std::int64_t rows_per_run(std::int64_t vocabulary);

// How many tokens all lanes read next: up to `left` and kChunkTokens, to the first boundary, and no more than each
// lane's open pages take; lanes at the end of their context are marked as ended.
std::int64_t next_chunk(std::span<Lane*> lanes, std::int64_t position, std::int64_t left);

// Marks the lanes whose cache cannot take `tokens` more within its budget as ended; their content stays as it is.
// Returns: how many. (A cache knows only when a step begins whether demotion makes the room.)
int end_full_lanes(std::span<Lane*> lanes, std::int64_t tokens);

// The lengths of the noise lane's pieces of a chunk; the second is 0 for a chunk of one token.
struct Pieces {
  std::int64_t first = 0, second = 0;
};
Pieces noise_pieces(std::int64_t chunk);

class Lockstep {
 public:
  // Lanes and model must outlive this. Requires: reference and noise are 16-bit caches without a budget.
  Lockstep(const Model& model, model::Runner* runner, int threads, Lane* reference, Lane* noise,
           std::span<Lane> tested);

  // Reads the next chunk of `text`. Returns: its tokens, 0 at the end of the text.
  Result<std::int64_t> advance(std::span<const std::int32_t> text);

  // Graph runs that the last chunk took for the reference and neve's caches.
  int runs() const { return runs_; }

 private:
  // Runs the reference and the live caches of neve over `tokens`, some lanes a graph run, and scores them.
  Status run_caches(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next);
  Status run_peer(Lane* lane, std::span<const std::int32_t> tokens, std::span<const std::int32_t> next);
  Status run_noise(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next);
  Status score(Lane* lane, std::int64_t first_row, std::span<const float> logits, std::span<const std::int32_t> next);

  const std::int64_t vocabulary_;
  model::Runner* runner_;
  Lane* reference_;
  Lane* noise_;
  std::vector<Lane*> caches_;  // the reference first, then neve's tested caches
  std::vector<Lane*> peers_;
  ReferenceRows rows_;
  std::vector<RowDamage> scratch_;
  std::int64_t position_ = 0;
  int runs_ = 0;
};

}  // namespace neve::damage
