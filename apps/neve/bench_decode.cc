// neve bench decode: tokens per second of a whole model at several depths, neve's caches and llama.cpp's.
#include <iostream>
#include <memory>

#include "bench.h"
#include "flags.h"
#include "interrupt.h"
#include "load.h"
#include "neve/bench.h"
#include "progress.h"
#include "report.h"
#include "table.h"

namespace neve::app {
namespace {

// `--seqs fit`: as many sequences as fit into the bytes of this many at 16 bit, of this many tokens unless --depth says.
constexpr int kFitSequences = 4;
constexpr std::int64_t kFitDepth = 8192;

struct DecodeFlags {
  ModelFlags model;
  KvListFlag kv;
  BudgetFlags budget;
  std::vector<std::int64_t> depths = {0, 4096, 16384};
  bool depths_given = false;
  std::string sequences = "1";
  Weights weights = Weights::kFile;
  DecodeBenchOptions options;
  bool json = false;
};

Json row_of(const DecodeBenchRow& row) {
  Json json = {{"engine", row.engine},
               {"kv", row.kv},
               {"depth", row.depth},
               {"sequences", row.sequences},
               {"decode_tokens_per_s", row.decode_tokens_per_s},
               {"best_decode_tokens_per_s", row.best_decode_tokens_per_s},
               {"decode_over_f16", row.decode_over_f16},
               {"prefill_tokens_per_s", nullptr},
               {"kv_bytes", row.kv_bytes}};
  if (row.prefill_tokens_per_s > 0) {
    json["prefill_tokens_per_s"] = row.prefill_tokens_per_s;
    json["best_prefill_tokens_per_s"] = row.best_prefill_tokens_per_s;
    json["prefill_over_f16"] = row.prefill_over_f16;
  }
  return json;
}

void print_table(const std::vector<DecodeBenchRow>& rows, const DecodeBenchOptions& options, int threads) {
  std::cout << "Tokens per second, median of " << options.repeats << " samples of " << options.decode_tokens
            << " steps and of a prefill of " << options.prefill_tokens << " tokens, " << threads << " threads\n\n";
  Table table({{"engine", Align::kLeft},
               {"kv", Align::kLeft},
               {"depth"},
               {"seqs"},
               {"decode t/s"},
               {"best"},
               {"/ llama f16"},
               {"prefill t/s"},
               {"/ llama f16"},
               {"kv bytes"}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DecodeBenchRow& row = rows[i];
    if (i > 0 && row.depth != rows[i - 1].depth) table.add_gap();
    table.add({row.engine, row.kv, std::to_string(row.depth), std::to_string(row.sequences),
               fixed(row.decode_tokens_per_s, 1), fixed(row.best_decode_tokens_per_s, 1), times(row.decode_over_f16),
               row.prefill_tokens_per_s > 0 ? fixed(row.prefill_tokens_per_s, 0) : "-", times(row.prefill_over_f16),
               format_bytes(row.kv_bytes)});
  }
  table.print(std::cout);
}

int bench_decode_command(DecodeFlags flags) {
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  catch_interrupt();
  DecodeBenchOptions& options = flags.options;
  options.caches = flags.kv.specs;
  options.demote = flags.budget.demote;
  options.budget_bytes = flags.budget.bytes;
  options.depths = flags.depths;
  if (flags.sequences == "fit") {
    options.fit_f16_sequences = kFitSequences;
    if (!flags.depths_given) options.depths = {kFitDepth};
  } else {
    options.sequences = std::stoi(flags.sequences);
  }
  const auto model = load_model(flags.model, flags.weights);
  if (!model.ok()) return fail(model.status());
  const int threads = (*model)->threads();
  Progress progress("decode");
  options.control.progress = progress.callback();
  options.control.cancelled = interrupted;
  const auto rows = bench_decode(**model, options);
  progress.finish();
  if (!rows.ok()) return fail(rows.status());
  if (!flags.json) {
    print_table(*rows, options, threads);
    return kDone;
  }
  Json report = make_report("bench decode", *machine, threads,
                            {{"model", flags.model.path},
                             {"kv", flags.kv.texts()},
                             {"depth", options.depths},
                             {"seqs", flags.sequences},
                             {"tokens", options.decode_tokens},
                             {"prefill", options.prefill_tokens},
                             {"repeats", options.repeats},
                             {"weights", flags.weights == Weights::kF32 ? "f32" : "file"},
                             {"demote", flags.budget.demote_name()},
                             {"budget_bytes", flags.budget.bytes}});
  for (const DecodeBenchRow& row : *rows) report["rows"].push_back(row_of(row));
  print_json(report);
  return kDone;
}

// "fit" or a whole number from 1 on.
std::string check_sequences(const std::string& text) {
  const bool number = !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
  if (text == "fit" || (number && std::stoi(text) > 0)) return "";
  return "wanted a number of sequences or fit, got \"" + text + "\"";
}

}  // namespace

void add_bench_decode(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand("decode", "decoding and prefill of a model at several depths");
  auto flags = std::make_shared<DecodeFlags>();
  add_model_flags(command, flags->model);
  add_kv_list_flag(command, flags->kv, kBenchCaches);
  add_budget_flags(command, flags->budget);
  add_numbers_flag(command, "--depth", flags->depths, "tokens in every sequence before the clock starts");
  command
      ->add_option("--seqs", flags->sequences,
                   "sequences; fit: as many as fit into the bytes of 4 sequences of 8192 tokens at 16 bit")
      ->check(check_sequences)
      ->capture_default_str();
  command->add_option("-n,--tokens", flags->options.decode_tokens, "steps of a decode sample")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--prefill", flags->options.prefill_tokens, "tokens of a prefill sample; 0 = none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--repeats", flags->options.repeats, "samples of every row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--weights",
          [flags](const std::string& text) { flags->weights = text == "f32" ? Weights::kF32 : Weights::kFile; },
          "file: as they are; f32: converted once and kept")
      ->check(CLI::IsMember({"f32", "file"}))
      ->default_str("file");
  add_json_flag(command, flags->json);
  command->callback([&action, flags, command] {
    flags->depths_given = command->count("--depth") > 0;
    action = [flags] { return bench_decode_command(*flags); };
  });
}

}  // namespace neve::app
