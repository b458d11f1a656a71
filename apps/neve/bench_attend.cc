// neve bench attend: attention of one token over a long cache, neve's and ggml's.
#include <iostream>
#include <memory>

#include "bench.h"
#include "flags.h"
#include "interrupt.h"
#include "neve/bench.h"
#include "progress.h"
#include "report.h"
#include "table.h"

namespace neve::app {
namespace {

struct AttendFlags {
  KvListFlag kv;
  std::vector<std::int64_t> head_dims = {64, 128};
  std::vector<std::int64_t> gqa = {1, 3, 4, 8};
  AttendBenchOptions options;
  std::uint64_t working_set_bytes = AttendBenchOptions().working_set_bytes;
  int threads = 0;
  bool json = false;
};

std::vector<int> as_ints(const std::vector<std::int64_t>& numbers) {
  std::vector<int> ints;
  for (const std::int64_t number : numbers) ints.push_back(static_cast<int>(number));
  return ints;
}

Json row_of(const AttendBenchRow& row) {
  return {{"engine", row.engine},
          {"kv", row.kv},
          {"path", row.path},
          {"head_dim", row.head_dim},
          {"gqa", row.gqa},
          {"layers", row.layers},
          {"tokens", row.tokens},
          {"bytes", row.bytes},
          {"values_per_s", row.values_per_s},
          {"best_values_per_s", row.best_values_per_s},
          {"step_us", row.step_us},
          {"over_f16", row.over_f16},
          {"over_q4_0", row.over_q4_0}};
}

void print_table(const std::vector<AttendBenchRow>& rows, const AttendBenchOptions& options) {
  std::cout << "One token's attention over " << options.depth_tokens << " tokens, " << options.threads << " threads, "
            << options.kv_heads << " KV heads; G values/s = 1e9 cached key and value elements read per second\n\n";
  Table table({{"engine", Align::kLeft},
               {"kv", Align::kLeft},
               {"head"},
               {"GQA"},
               {"layers"},
               {"bytes"},
               {"G values/s"},
               {"best"},
               {"us/layer"},
               {"/ ggml f16"},
               {"/ ggml q4_0"},
               {"path", Align::kLeft}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const AttendBenchRow& row = rows[i];
    if (i > 0 && (row.head_dim != rows[i - 1].head_dim || row.gqa != rows[i - 1].gqa)) table.add_gap();
    table.add({row.engine, row.kv, std::to_string(row.head_dim), std::to_string(row.gqa), std::to_string(row.layers),
               format_bytes(row.bytes), fixed(row.values_per_s * 1e-9, 2), fixed(row.best_values_per_s * 1e-9, 2),
               fixed(row.step_us, 1), times(row.over_f16), times(row.over_q4_0), row.path});
  }
  table.print(std::cout);
}

int bench_attend_command(AttendFlags flags) {
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  catch_interrupt();
  AttendBenchOptions& options = flags.options;
  options.caches = flags.kv.specs;
  options.head_dims = as_ints(flags.head_dims);
  options.gqa = as_ints(flags.gqa);
  options.working_set_bytes = flags.working_set_bytes;
  options.threads = flags.threads > 0 ? flags.threads : machine->threads;
  Progress progress("attend");
  options.control.progress = progress.callback();
  options.control.cancelled = interrupted;
  const auto rows = bench_attend(options);
  progress.finish();
  if (!rows.ok()) return fail(rows.status());
  if (!flags.json) {
    print_table(*rows, options);
    return kDone;
  }
  Json report = make_report("bench attend", *machine, options.threads,
                            {{"kv", flags.kv.texts()},
                             {"head_dim", flags.head_dims},
                             {"gqa", flags.gqa},
                             {"depth", options.depth_tokens},
                             {"kv_heads", options.kv_heads},
                             {"working_set_bytes", options.working_set_bytes},
                             {"repeats", options.repeats}});
  for (const AttendBenchRow& row : *rows) report["rows"].push_back(row_of(row));
  print_json(report);
  return kDone;
}

}  // namespace

void add_bench_attend(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand("attend", "attention of one token over a long cache");
  auto flags = std::make_shared<AttendFlags>();
  add_kv_list_flag(command, flags->kv, kBenchCaches);
  add_numbers_flag(command, "--head-dim", flags->head_dims, "channels of a head");
  add_numbers_flag(command, "--gqa", flags->gqa, "query heads per KV head");
  command->add_option("--depth", flags->options.depth_tokens, "tokens in the cache")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--kv-heads", flags->options.kv_heads, "KV heads of a layer")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--working-set",
          [flags](const std::string& text) {
            const auto bytes = parse_bytes(text);
            if (!bytes.ok()) throw CLI::ValidationError("--working-set", bytes.status().message());
            flags->working_set_bytes = *bytes;
          },
          "layers are added until an int4 cache holds this much")
      ->default_str("200MB");
  command->add_option("--repeats", flags->options.repeats, "samples of every row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_threads_flag(command, flags->threads);
  add_json_flag(command, flags->json);
  command->callback([&action, flags] { action = [flags] { return bench_attend_command(*flags); }; });
}

}  // namespace neve::app
