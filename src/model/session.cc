#include "model/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/model_impl.h"
#include "model/utf8_pieces.h"

namespace neve::model {
namespace {

// A prompt's chunk: enough rows for the matrix products to be at full speed.
constexpr std::int64_t kChunkTokens = 512;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double per_second(std::int64_t count, double seconds) {
  return count > 0 && seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

bool cancelled(const GenerateCallbacks& callbacks) { return callbacks.cancelled && callbacks.cancelled(); }

void count_by_rung(const CacheMemory& memory, GenerateReport::ByRung* tokens) {
  std::int64_t& rung = memory.bytes_2 > 0   ? tokens->at_2
                       : memory.bytes_4 > 0 ? tokens->at_4
                       : memory.bytes_8 > 0 ? tokens->at_8
                                            : tokens->at_16;
  ++rung;
}

// The value that a share `p` of the sorted values does not exceed.
double percentile(const std::vector<float>& sorted, double p) {
  if (sorted.empty()) return 0.0;
  const auto index = static_cast<std::size_t>(std::lround(p * static_cast<double>(sorted.size() - 1)));
  return sorted[index];
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(const Model& model, const GenerateOptions& options) {
  Result<Sampler> sampler = Sampler::create(*model.impl().vocabulary, options.sampling, options.at_end);
  if (!sampler.ok()) return sampler.status();
  const int threads = options.threads > 0 ? options.threads : model.threads();
  CacheOptions cache_options = options.cache;
  cache_options.max_sequences = 1;
  cache_options.threads = threads;
  cache_options.schedule = CodingSchedule::kSpread;
  Result<std::unique_ptr<KvCache>> cache = KvCache::create(model.info().layers, cache_options);
  if (!cache.ok()) return cache.status();
  const Result<int> sequence = (*cache)->add_sequence();
  if (!sequence.ok()) return sequence.status();
  Result<std::unique_ptr<Runner>> runner = Runner::create(model, threads);
  if (!runner.ok()) return runner.status();
  std::unique_ptr<Session> session(new Session(model, options, std::move(*sampler)));
  session->cache_ = std::move(*cache);
  session->sequence_ = *sequence;
  session->runner_ = std::move(*runner);
  return session;
}

std::optional<Finish> Session::full() const {
  if (std::ssize(held_) >= cache_->options().max_tokens) return Finish::kLength;
  if (cache_->step_limit(sequence_, 1) < 1) return Finish::kBudget;
  return std::nullopt;
}

Status Session::truncate(std::int64_t tokens) {
  pending_.reset();
  if (tokens >= std::ssize(held_)) return ok_status();
  NEVE_RETURN_IF_ERROR(cache_->truncate(sequence_, tokens));
  held_.resize(static_cast<std::size_t>(tokens));
  return ok_status();
}

void Session::back_to(const Mark& mark) {
  if (std::ssize(held_) < mark.tokens || !truncate(mark.tokens).ok()) return;
  pending_ = mark.pending;
}

Result<bool> Session::step(std::span<const std::int32_t> tokens, LogitRows rows) {
  const RunnerPart part = {.cache = cache_.get(), .sequence = sequence_, .tokens = tokens, .logits = rows};
  const Result<std::span<const float>> logits = runner_->step({&part, 1});
  if (!logits.ok() && logits.status().code() == Code::kBudget) return Result<bool>(false);
  if (!logits.ok()) return logits.status();
  held_.insert(held_.end(), tokens.begin(), tokens.end());
  logits_.assign(logits->begin(), logits->end());
  return Result<bool>(true);
}

Result<bool> Session::read(std::span<const std::int32_t> tokens, const GenerateCallbacks& callbacks,
                           GenerateReport* report) {
  std::vector<std::int32_t> with_pending;
  if (pending_.has_value()) {
    with_pending.push_back(*pending_);
    with_pending.insert(with_pending.end(), tokens.begin(), tokens.end());
    tokens = with_pending;
  }
  const std::int64_t all = std::ssize(tokens);
  const Clock::time_point start = Clock::now();
  std::optional<Finish> ended;
  while (!tokens.empty() && !ended) {
    if (cancelled(callbacks)) ended = Finish::kCancelled;
    if (!ended) ended = full();
    if (ended) break;
    const std::int64_t limit = cache_->step_limit(sequence_, std::min(std::ssize(tokens), kChunkTokens));
    const auto chunk = static_cast<std::size_t>(limit);
    const bool last = chunk == tokens.size();
    const Result<bool> done = step(tokens.first(chunk), last ? LogitRows::kLast : LogitRows::kNone);
    if (!done.ok()) return done.status();
    if (!*done) {
      ended = Finish::kBudget;
      break;
    }
    pending_.reset();
    tokens = tokens.subspan(chunk);
    if (callbacks.prefill) callbacks.prefill(all - std::ssize(tokens), all);
  }
  report->prompt_tokens = all - std::ssize(tokens);
  report->prefill_s = seconds_since(start);
  report->prefill_tokens_per_s = per_second(report->prompt_tokens, report->prefill_s);
  if (ended) report->finish = *ended;
  finish_report(report);
  return !ended.has_value();
}

Status Session::write(const GenerateCallbacks& callbacks, GenerateReport* report) {
  const Clock::time_point start = Clock::now();
  Utf8Pieces pieces;
  written_.clear();
  const auto emit = [&](const std::string& piece) {
    report->text += piece;
    if (callbacks.text && !piece.empty()) callbacks.text(piece);
  };
  std::optional<Finish> ended;
  if (options_.new_tokens == 0) ended = Finish::kLength;
  while (!ended) {
    const Result<std::int32_t> token = sampler_.sample(logits_);
    if (!token.ok()) return token.status();
    if (model_.is_end(*token)) {
      ended = Finish::kStop;
      break;
    }
    pending_ = *token;
    ++report->new_tokens;
    count_by_rung(cache_->memory(), &report->tokens_generated_by_rung);
    const std::string text = model_.token_text(*token);
    written_ += text;
    emit(pieces.feed(text));

    if (report->new_tokens == options_.new_tokens) ended = Finish::kLength;
    if (!ended && cancelled(callbacks)) ended = Finish::kCancelled;
    if (!ended) ended = full();
    if (ended) break;
    const std::int64_t boundary = cache_->next_boundary(sequence_);
    const Clock::time_point step_start = Clock::now();
    const Result<bool> done = step({&*pending_, 1}, LogitRows::kLast);
    if (!done.ok()) return done.status();
    if (!*done) {
      ended = Finish::kBudget;
      break;
    }
    report->steps.push_back({static_cast<float>(seconds_since(step_start) * 1e3), std::ssize(held_) >= boundary});
    pending_.reset();
  }
  emit(pieces.finish());
  report->finish = *ended;
  report->decode_s = seconds_since(start);
  report->decode_tokens_per_s = per_second(report->new_tokens, report->decode_s);
  finish_report(report);
  return ok_status();
}

void Session::finish_report(GenerateReport* report) const {
  report->memory = cache_->memory();
  report->budget_bytes = report->memory.budget_bytes;
  report->compute_bytes = runner_->compute_bytes();
  std::vector<float> sorted;
  for (const GenerateReport::Step& step : report->steps) sorted.push_back(step.ms);
  std::sort(sorted.begin(), sorted.end());
  report->step_ms_median = percentile(sorted, 0.5);
  report->step_ms_p99 = percentile(sorted, 0.99);
  report->step_ms_p999 = percentile(sorted, 0.999);
}

}  // namespace neve::model
