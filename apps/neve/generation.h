// What `run` and `chat` share: the flags of generation and what they mean for a model.
#pragma once

#include <CLI/CLI.hpp>

#include "flags.h"
#include "neve/generate.h"
#include "report.h"

namespace neve::app {

struct GenerationFlags {
  ModelFlags model;
  KvFlag kv;
  BudgetFlags budget;
  std::int64_t context = 0;      // 0 = the model's
  std::int64_t new_tokens = -1;  // < 0 = no limit
  SamplingOptions sampling;
  bool ignore_end = false;
  bool json = false;
};
void add_generation_flags(CLI::App* command, GenerationFlags& flags);

GenerateOptions generate_options(const GenerationFlags& flags, const Model& model);

// The `options` of a report.
Json options_json(const GenerationFlags& flags, const GenerateOptions& options);

}  // namespace neve::app
