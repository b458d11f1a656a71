// Draws the next token from logits, by llama.cpp's sampler chain.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "llama.h"
#include "model/vocabulary.h"
#include "neve/generate.h"
#include "neve/status.h"

namespace neve::model {

class Sampler {
 public:
  // `vocabulary` must outlive the sampler. Errors: kInvalidArgument (an option out of its range).
  static Result<Sampler> create(const Vocabulary& vocabulary, const SamplingOptions& options, AtEndToken at_end);

  // logits: [vocabulary]. Errors: kNotFinite: no logit is a number to go by.
  Result<std::int32_t> sample(std::span<const float> logits);

 private:
  struct Free {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
  };
  Sampler(const Vocabulary& vocabulary, AtEndToken at_end) : vocabulary_(&vocabulary), at_end_(at_end) {}

  const Vocabulary* vocabulary_;
  AtEndToken at_end_;
  std::unique_ptr<llama_sampler, Free> chain_;
  std::vector<llama_token_data> candidates_;  // [vocabulary]
};

}  // namespace neve::model
