// What `eval kl` and `eval ppl` share: flags, the text, the lockstep run.
#pragma once

#include <CLI/CLI.hpp>

#include "flags.h"
#include "neve/damage.h"
#include "program.h"
#include "report.h"

namespace neve::app {

struct EvalFlags {
  ModelFlags model;
  KvListFlag kv;
  BudgetFlags budget;
  std::string file;  // empty = the model's own text
  std::int64_t tokens = 2048;
  int segments = 8;
  std::uint64_t seed = 1;
  Weights weights = Weights::kF32;
  bool json = false;
};
void add_eval_flags(CLI::App* command, EvalFlags& flags);

struct EvalRun {
  MachineInfo machine;
  int threads = 0;
  std::string text_source;
  DamageReport damage;
};
// Loads the model, reads or samples the text, measures. Says on stderr when a file is shorter than asked for.
Result<EvalRun> run_eval(const EvalFlags& flags);

// The JSON object without its rows.
Json eval_report(const std::string& command, const EvalFlags& flags, const EvalRun& run);

// The keys that a row has in every eval: engine kv state tokens bytes bits_per_value.
Json eval_row(const DamageRow& row);

// "2048 tokens of GPL-3, f32 weights": above a table.
std::string eval_title(const EvalFlags& flags, const EvalRun& run);

void add_eval_kl(CLI::App& group, Action& action);
void add_eval_ppl(CLI::App& group, Action& action);

}  // namespace neve::app
