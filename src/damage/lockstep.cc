#include "damage/lockstep.h"

#include <algorithm>

namespace neve::damage {
namespace {

Status named(const Lane& lane, const Status& status) {
  return Status(status.code(), lane.spec.text + ": " + status.message());
}

}  // namespace

std::int64_t rows_per_run(std::int64_t vocabulary) {
  const std::int64_t row_bytes = vocabulary * static_cast<std::int64_t>(sizeof(float));
  return std::clamp(kLogitBytes / row_bytes, kChunkTokens, kMostRows);
}

std::int64_t next_chunk(std::span<Lane*> lanes, std::int64_t position, std::int64_t left) {
  std::int64_t chunk = std::min(left, kChunkTokens);
  for (Lane* lane : lanes) {
    if (lane->ended || lane->cache == nullptr) continue;
    const std::int64_t to_boundary = lane->cache->next_boundary(lane->sequence) - position;
    const std::int64_t wanted = to_boundary > 0 ? std::min(chunk, to_boundary) : chunk;
    const std::int64_t takes = lane->cache->step_limit(lane->sequence, wanted);
    if (takes > 0) {
      chunk = std::min(wanted, takes);
    } else {
      lane->ended = true;
    }
  }
  return chunk;
}

int end_full_lanes(std::span<Lane*> lanes, std::int64_t tokens) {
  int ended = 0;
  for (Lane* lane : lanes) {
    const StepPart part = {lane->sequence, static_cast<int>(tokens), nullptr};
    if (lane->cache->begin_step({&part, 1}).ok()) {
      lane->cache->abandon_step();
    } else {
      lane->ended = true;
      ++ended;
    }
  }
  return ended;
}

Pieces noise_pieces(std::int64_t chunk) {
  // A third: unequal, and neither piece is a multiple of the row blocks of a matrix product when the chunk is.
  const std::int64_t first = std::max<std::int64_t>(1, chunk / 3);
  return {first, chunk - first};
}

Lockstep::Lockstep(const Model& model, model::Runner* runner, int threads, Lane* reference, Lane* noise,
                   std::span<Lane> tested)
    : vocabulary_(model.info().vocabulary),
      runner_(runner),
      reference_(reference),
      noise_(noise),
      caches_({reference}),
      rows_(vocabulary_, threads) {
  for (Lane& lane : tested) (lane.cache ? caches_ : peers_).push_back(&lane);
}

Result<std::int64_t> Lockstep::advance(std::span<const std::int32_t> text) {
  const std::int64_t left = std::ssize(text) - position_;
  if (left <= 0) return std::int64_t{0};
  const std::int64_t chunk = next_chunk(caches_, position_, left);
  const auto first = static_cast<std::size_t>(position_);
  const auto tokens = text.subspan(first, static_cast<std::size_t>(chunk));
  std::vector<std::int32_t> next(tokens.begin() + 1, tokens.end());
  next.push_back(left > chunk ? text[first + tokens.size()] : -1);

  NEVE_RETURN_IF_ERROR(run_caches(tokens, next));
  for (Lane* peer : peers_) NEVE_RETURN_IF_ERROR(run_peer(peer, tokens, next));
  NEVE_RETURN_IF_ERROR(run_noise(tokens, next));
  position_ += chunk;
  return chunk;
}

Status Lockstep::run_caches(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  const auto has_ended = [](const Lane* lane) { return lane->ended; };
  std::vector<Lane*> live = caches_;
  std::erase_if(live, has_ended);
  const std::size_t logits_per_lane = tokens.size() * static_cast<std::size_t>(vocabulary_);
  const auto lanes_per_run = static_cast<std::size_t>(rows_per_run(vocabulary_) / std::ssize(tokens));
  runs_ = 0;
  for (std::size_t first = 0; first < live.size();) {
    const std::span<Lane*> group(live.data() + first, std::min(lanes_per_run, live.size() - first));
    std::vector<model::RunnerPart> parts;
    for (const Lane* lane : group) {
      parts.push_back({lane->cache.get(), lane->sequence, tokens, model::LogitRows::kAll});
    }
    const auto logits = runner_->step(parts);
    if (!logits.ok()) {
      // Nothing has happened in any cache: take out who is full, and once more.
      if (logits.status().code() != Code::kBudget || end_full_lanes(group, std::ssize(tokens)) == 0)
        return logits.status();
      std::erase_if(live, has_ended);
      continue;
    }
    ++runs_;
    if (first == 0) rows_.set(logits->first(logits_per_lane));
    for (std::size_t i = 0; i < group.size(); ++i) {
      NEVE_RETURN_IF_ERROR(score(group[i], 0, logits->subspan(i * logits_per_lane, logits_per_lane), next));
    }
    first += group.size();
  }
  return ok_status();
}

Status Lockstep::run_peer(Lane* lane, std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  const auto logits = lane->peer->step(lane->sequence, tokens, false);
  if (!logits.ok()) return named(*lane, logits.status());
  return score(lane, 0, *logits, next);
}

Status Lockstep::run_noise(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  const Pieces pieces = noise_pieces(std::ssize(tokens));
  std::int64_t row = 0;
  for (const std::int64_t length : {pieces.first, pieces.second}) {
    if (length == 0) continue;
    const auto from = static_cast<std::size_t>(row), count = static_cast<std::size_t>(length);
    const model::RunnerPart part = {noise_->cache.get(), noise_->sequence, tokens.subspan(from, count),
                                    model::LogitRows::kAll};
    const auto logits = runner_->step({&part, 1});
    if (!logits.ok()) return logits.status();
    NEVE_RETURN_IF_ERROR(score(noise_, row, *logits, next.subspan(from, count)));
    row += length;
  }
  return ok_status();
}

Status Lockstep::score(Lane* lane, std::int64_t first_row, std::span<const float> logits,
                       std::span<const std::int32_t> next) {
  scratch_.resize(next.size());
  rows_.compare(first_row, logits, next, scratch_);
  const Status added = lane->score.add(scratch_, next);
  return added.ok() ? added : named(*lane, added);
}

}  // namespace neve::damage
