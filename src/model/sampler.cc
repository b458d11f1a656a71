#include "model/sampler.h"

#include <cmath>
#include <limits>
#include <string>

namespace neve::model {
namespace {

Status out_of_range(const char* name, const char* wanted, float got) {
  return Status(Code::kInvalidArgument, std::string(name) + ": wanted " + wanted + ", got " + std::to_string(got));
}

Status check(const SamplingOptions& options) {
  if (!(options.temperature >= 0.f && std::isfinite(options.temperature))) {
    return out_of_range("temperature", "0 or more", options.temperature);
  }
  if (!(options.top_p > 0.f && options.top_p <= 1.f)) return out_of_range("top-p", "above 0, at most 1", options.top_p);
  if (!(options.min_p >= 0.f && options.min_p <= 1.f)) return out_of_range("min-p", "0 to 1", options.min_p);
  if (options.top_k < 0) return out_of_range("top-k", "0 or more", static_cast<float>(options.top_k));
  return ok_status();
}

}  // namespace

Result<Sampler> Sampler::create(const Vocabulary& vocabulary, const SamplingOptions& options, AtEndToken at_end) {
  NEVE_RETURN_IF_ERROR(check(options));
  Sampler sampler(vocabulary, at_end);
  sampler.chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  llama_sampler* const chain = sampler.chain_.get();
  if (options.temperature == 0.f) {
    llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    return sampler;
  }
  if (options.top_k > 0) llama_sampler_chain_add(chain, llama_sampler_init_top_k(options.top_k));
  if (options.top_p < 1.f) llama_sampler_chain_add(chain, llama_sampler_init_top_p(options.top_p, 1));
  if (options.min_p > 0.f) llama_sampler_chain_add(chain, llama_sampler_init_min_p(options.min_p, 1));
  llama_sampler_chain_add(chain, llama_sampler_init_temp(options.temperature));
  // llama.cpp takes its default seed to mean "any"; here every seed is a seed.
  const std::uint32_t seed = options.seed == LLAMA_DEFAULT_SEED ? 0 : options.seed;
  llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
  return sampler;
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  candidates_.resize(logits.size());
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    const bool excluded = at_end_ == AtEndToken::kContinue && vocabulary_->is_end(token);
    // A NaN would never compare and take the sort in top-k with it.
    const float logit = excluded || std::isnan(logits[i]) ? kNever : logits[i];
    any = any || std::isfinite(logit);
    candidates_[i] = {token, logit, 0.f};
  }
  if (!any) return Status(Code::kNotFinite, "sampling: no logit is finite");
  llama_token_data_array array = {candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(chain_.get(), &array);
  if (array.selected < 0 || array.selected >= static_cast<std::int64_t>(array.size)) {
    return Status(Code::kInternal, "sampling: the chain chose no token");
  }
  const std::int32_t token = array.data[array.selected].id;
  llama_sampler_accept(chain_.get(), token);
  return token;
}

}  // namespace neve::model
