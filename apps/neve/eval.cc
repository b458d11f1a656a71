#include "eval.h"

#include <iostream>

#include "interrupt.h"
#include "load.h"
#include "progress.h"

namespace neve::app {

void add_eval_flags(CLI::App* command, EvalFlags& flags) {
  add_model_flags(command, flags.model);
  add_kv_list_flag(command, flags.kv, "int8,int4,int2,graded:4,graded:2,auto:4,llama:q8_0,llama:q4_0");
  add_budget_flags(command, flags.budget);
  CLI::Option* file = command->add_option("-f,--file", flags.file, "a text to read");
  command->add_option("--text", "own: the model's own text, the default without -f")
      ->check(CLI::IsMember({"own"}))
      ->excludes(file);
  command->add_option("-n,--tokens", flags.tokens, "tokens to read")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  command->add_option("--segments", flags.segments, "samples that the model's own text is made of")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--seed", flags.seed, "of the model's own text")->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--weights",
          [&flags](const std::string& text) { flags.weights = text == "f32" ? Weights::kF32 : Weights::kFile; },
          "f32: converted once and kept; file: as they are, with their rounding noise")
      ->check(CLI::IsMember({"f32", "file"}))
      ->default_str("f32");
  add_json_flag(command, flags.json);
}

namespace {

Result<EvalText> get_text(const Model& model, const EvalFlags& flags) {
  if (!flags.file.empty()) return read_eval_text(model, flags.file, flags.tokens);
  Progress progress("sampling the model's own text");
  OwnTextOptions options;
  options.tokens = flags.tokens;
  options.segments = flags.segments;
  options.seed = flags.seed;
  options.progress = progress.callback();
  options.cancelled = interrupted;
  return sample_own_text(model, options);
}

Result<DamageReport> measure(const Model& model, const EvalText& text, const EvalFlags& flags) {
  Progress progress("measuring");
  DamageOptions options;
  options.caches = flags.kv.specs;
  options.demote = flags.budget.demote;
  options.budget_bytes = flags.budget.bytes;
  options.progress = progress.callback();
  options.cancelled = interrupted;
  return measure_damage(model, text, options);
}

}  // namespace

Result<EvalRun> run_eval(const EvalFlags& flags) {
  auto machine = machine_info();
  if (!machine.ok()) return machine.status();
  catch_interrupt();
  const auto model = load_model(flags.model, flags.weights);
  if (!model.ok()) return model.status();
  const auto text = get_text(**model, flags);
  if (!text.ok()) return text.status();
  if (std::ssize(text->tokens) < flags.tokens) {
    std::cerr << "neve: " << flags.file << " has only " << text->tokens.size() << " of the " << flags.tokens
              << " tokens asked for; all of it is read\n";
  }
  auto damage = measure(**model, *text, flags);
  if (!damage.ok()) return damage.status();
  return EvalRun{std::move(*machine), (*model)->threads(), text->source, std::move(*damage)};
}

Json eval_report(const std::string& command, const EvalFlags& flags, const EvalRun& run) {
  Json options = {{"model", flags.model.path},
                  {"kv", flags.kv.texts()},
                  {"text", run.text_source},
                  {"tokens", run.damage.tokens},
                  {"weights", flags.weights == Weights::kF32 ? "f32" : "file"},
                  {"demote", flags.budget.demote_name()},
                  {"budget_bytes", flags.budget.bytes}};
  if (flags.file.empty()) options["seed"] = flags.seed;
  return make_report(command, run.machine, run.threads, std::move(options));
}

Json eval_row(const DamageRow& row) {
  // No spec of a recurrent state was typed: the attention cache is all that is tested.
  return {{"engine", row.engine}, {"kv", row.kv},       {"state", nullptr},
          {"tokens", row.tokens}, {"bytes", row.bytes}, {"bits_per_value", row.bits_per_value}};
}

std::string eval_title(const EvalFlags& flags, const EvalRun& run) {
  return std::to_string(run.damage.tokens) + " tokens of " + run.text_source + ", " +
         (flags.weights == Weights::kF32 ? "f32 weights" : "weights as in the file") + ", " + run.machine.isa;
}

void add_eval(CLI::App& program, Action& action) {
  CLI::App* group = program.add_subcommand("eval", "what a cache does to the model's answers: kl, ppl");
  group->require_subcommand(1);
  add_eval_kl(*group, action);
  add_eval_ppl(*group, action);
}

}  // namespace neve::app
