// The model's own text: what a damage run reads when it is given no file.
#include <algorithm>
#include <random>

#include "damage/sample.h"
#include "model/runner.h"
#include "neve/damage.h"

namespace neve {
namespace {

// What a document starts with: what the tokenizer puts before every text, else the first token that ends one.
Result<std::int32_t> start_token(const Model& model) {
  const Result<std::vector<std::int32_t>> specials = model.tokenize("", true);
  if (specials.ok() && !specials->empty()) return specials->front();
  for (std::int32_t token = 0; token < model.info().vocabulary; ++token) {
    if (model.is_end(token)) return token;
  }
  return Status(Code::kUnsupported, "own text: the tokenizer has neither a start nor an end token; give a text file");
}

}  // namespace

Result<EvalText> sample_own_text(const Model& model, const OwnTextOptions& options) {
  if (options.tokens < 2 || options.segments < 1) {
    return Status(Code::kInvalidArgument, "own text: wanted at least 2 tokens and 1 segment, got " +
                                              std::to_string(options.tokens) + " and " +
                                              std::to_string(options.segments));
  }
  const auto start = start_token(model);
  if (!start.ok()) return start.status();
  const int threads = options.threads > 0 ? options.threads : model.threads();
  const auto segments = static_cast<int>(std::min<std::int64_t>(options.segments, options.tokens));
  const std::int64_t length = (options.tokens + segments - 1) / segments;

  auto spec = parse_kv_spec("f16");
  if (!spec.ok()) return spec.status();
  CacheOptions cache_options;
  cache_options.spec = *spec;
  cache_options.max_tokens = length;
  cache_options.max_sequences = segments;
  cache_options.threads = threads;
  auto cache = KvCache::create(model.info().layers, cache_options);
  if (!cache.ok()) return cache.status();
  auto runner = model::Runner::create(model, threads);
  if (!runner.ok()) return runner.status();

  std::vector<std::mt19937_64> random;
  std::vector<std::vector<std::int32_t>> text(static_cast<std::size_t>(segments), {*start});
  std::vector<model::RunnerPart> parts(static_cast<std::size_t>(segments));
  for (int segment = 0; segment < segments; ++segment) {
    random.emplace_back(options.seed + static_cast<std::uint64_t>(segment));
    const auto sequence = (*cache)->add_sequence();
    if (!sequence.ok()) return sequence.status();
    parts[static_cast<std::size_t>(segment)] = {cache->get(), *sequence, {}, model::LogitRows::kLast};
  }
  const auto vocabulary = static_cast<std::size_t>(model.info().vocabulary);
  for (std::int64_t step = 1; step < length; ++step) {
    if (options.cancelled && options.cancelled()) return Status(Code::kCancelled, "own text: stopped");
    for (std::size_t segment = 0; segment < text.size(); ++segment) parts[segment].tokens = {&text[segment].back(), 1};
    const auto logits = (*runner)->step(parts);
    if (!logits.ok()) return logits.status();
    for (std::size_t segment = 0; segment < text.size(); ++segment) {
      text[segment].push_back(damage::sample_token(logits->subspan(segment * vocabulary, vocabulary), random[segment]));
    }
    if (options.progress) options.progress(static_cast<double>(step) / static_cast<double>(length));
  }

  EvalText result;
  for (const auto& segment : text) result.tokens.insert(result.tokens.end(), segment.begin(), segment.end());
  result.tokens.resize(static_cast<std::size_t>(options.tokens));
  result.source = "own text, " + std::to_string(segments) + " segments, seed " + std::to_string(options.seed);
  return result;
}

}  // namespace neve
