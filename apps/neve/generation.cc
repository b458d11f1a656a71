#include "generation.h"

namespace neve::app {

void add_generation_flags(CLI::App* command, GenerationFlags& flags) {
  add_model_flags(command, flags.model);
  add_kv_flag(command, flags.kv);
  add_budget_flags(command, flags.budget);
  command->add_option("-c,--ctx", flags.context, "tokens that the cache is made for (default: the model's context)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("-n,--tokens", flags.new_tokens,
                   "most tokens to write; -1: until the model, the context or the budget ends")
      ->capture_default_str();
  command->add_option("-s,--seed", flags.sampling.seed, "same seed, same text")->capture_default_str();
  command->add_option("--temp", flags.sampling.temperature, "temperature; 0: always the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--top-k", flags.sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--top-p", flags.sampling.top_p, "draw from the tokens that make up this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--min-p", flags.sampling.min_p, "leave out tokens below this share of the likeliest")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--ignore-eos", flags.ignore_end, "never sample an end token: for measuring");
  add_json_flag(command, flags.json);
}

GenerateOptions generate_options(const GenerationFlags& flags, const Model& model) {
  GenerateOptions options;
  options.new_tokens = flags.new_tokens;
  options.cache.spec = flags.kv.spec;
  options.cache.demote = flags.budget.demote;
  options.cache.budget_bytes = flags.budget.bytes;
  options.cache.max_tokens = flags.context > 0 ? flags.context : model.info().context_tokens;
  options.sampling = flags.sampling;
  options.at_end = flags.ignore_end ? AtEndToken::kContinue : AtEndToken::kStop;
  return options;
}

Json options_json(const GenerationFlags& flags, const GenerateOptions& options) {
  return {{"model", flags.model.path},
          {"kv", options.cache.spec.text},
          {"budget_bytes", options.cache.budget_bytes},
          {"demote", flags.budget.demote_name()},
          {"ctx", options.cache.max_tokens},
          {"tokens", options.new_tokens},
          {"seed", options.sampling.seed},
          {"temp", options.sampling.temperature},
          {"top_k", options.sampling.top_k},
          {"top_p", options.sampling.top_p},
          {"min_p", options.sampling.min_p}};
}

}  // namespace neve::app
