// neve plan: what a cache will hold, to the byte, before anything is loaded.
#include <iostream>
#include <memory>

#include "flags.h"
#include "neve/machine.h"
#include "neve/model.h"
#include "program.h"
#include "report.h"
#include "table.h"

namespace neve::app {
namespace {

struct PlanFlags {
  std::string model;
  KvListFlag kv;
  BudgetFlags budget;
  std::int64_t context = 0;  // 0 = the model's
  int sequences = 1;
  bool json = false;
};

struct Planned {
  KvSpec spec;
  CachePlan plan;
};

Json row_of(const Planned& planned, const PlanFlags& flags, const ModelInfo& model) {
  Json layers = Json::array();
  for (const CachePlan::Layer& layer : planned.plan.layers) {
    layers.push_back({{"bytes", layer.bytes}, {"key_bits", layer.key_bits}, {"value_bits", layer.value_bits}});
  }
  return {{"kv", planned.spec.text},
          {"tokens", flags.context},
          {"sequences", flags.sequences},
          {"bytes", planned.plan.bytes},
          {"peak_bytes", planned.plan.peak_bytes},
          {"least_bytes", planned.plan.least_bytes},
          {"budget_bytes", planned.plan.budget_bytes},
          {"f16_bytes", planned.plan.f16_bytes},
          {"capacity_tokens", planned.plan.capacity_tokens},
          {"weights_bytes", model.weights_bytes},
          {"layers", std::move(layers)}};
}

std::string mebibytes(std::uint64_t bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 1); }

// "12 x K 4.0 V 4.0, 3 x K 2.0 V 2.0": runs of layers that hold the same widths.
std::string widths_of(const CachePlan& plan) {
  std::string text;
  for (std::size_t first = 0; first < plan.layers.size();) {
    const CachePlan::Layer& layer = plan.layers[first];
    std::size_t end = first;
    while (end < plan.layers.size() && plan.layers[end].key_bits == layer.key_bits &&
           plan.layers[end].value_bits == layer.value_bits) {
      ++end;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(end - first) + " x K " + fixed(layer.key_bits, 2) + " V " +
            fixed(layer.value_bits, 2);
    first = end;
  }
  return text;
}

void print_table(const std::vector<Planned>& rows, const PlanFlags& flags, const ModelInfo& model) {
  std::cout << model.name << " (" << model.architecture << "): " << model.layers.size() << " attention layers, weights "
            << format_bytes(static_cast<unsigned long long>(model.weights_bytes)) << "; " << flags.sequences << " x "
            << flags.context << " tokens\n\n";
  Table table({{"kv", Align::kLeft},
               {"bytes"},
               {"MiB"},
               {"peak MiB"},
               {"16 bit MiB"},
               {"least budget"},
               {"capacity"},
               {"bits per layer", Align::kLeft}});
  for (const Planned& row : rows) {
    table.add({row.spec.text, std::to_string(row.plan.bytes), mebibytes(row.plan.bytes), mebibytes(row.plan.peak_bytes),
               mebibytes(row.plan.f16_bytes), std::to_string(row.plan.least_bytes),
               std::to_string(row.plan.capacity_tokens), widths_of(row.plan)});
  }
  table.print(std::cout);
}

int plan(PlanFlags flags) {
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  const auto model = read_model_info(flags.model);
  if (!model.ok()) return fail(model.status());
  if (flags.context == 0) flags.context = model->context_tokens;
  std::vector<Planned> rows;
  for (const KvSpec& spec : flags.kv.specs) {
    if (spec.mode == KvMode::kPeer) {
      return fail(Status(Code::kInvalidArgument, "plan: " + spec.text + " is llama.cpp's own cache, not planned here"));
    }
    CacheOptions options;
    options.spec = spec;
    options.demote = flags.budget.demote;
    options.budget_bytes = flags.budget.bytes;
    options.max_tokens = flags.context;
    options.max_sequences = flags.sequences;
    auto planned = plan_cache(model->layers, options, flags.context, flags.sequences);
    if (!planned.ok()) return fail(planned.status());
    rows.push_back({spec, std::move(*planned)});
  }
  if (!flags.json) {
    print_table(rows, flags, *model);
    return kDone;
  }
  Json report = make_report("plan", *machine, machine->threads,
                            {{"model", flags.model},
                             {"ctx", flags.context},
                             {"seqs", flags.sequences},
                             {"budget_bytes", flags.budget.bytes},
                             {"demote", flags.budget.demote_name()},
                             {"kv", flags.kv.texts()}});
  for (const Planned& row : rows) report["rows"].push_back(row_of(row, flags, *model));
  print_json(report);
  return kDone;
}

}  // namespace

void add_plan(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("plan", "what a cache will hold, to the byte, before anything is loaded");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("-m,--model", flags->model, "a GGUF file; only its header is read")->required();
  command->add_option("-c,--ctx", flags->context, "tokens of each sequence (default: what the model was trained for)")
      ->check(CLI::PositiveNumber);
  command->add_option("--seqs", flags->sequences, "sequences that share the budget")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_kv_list_flag(command, flags->kv, "auto");
  add_budget_flags(command, flags->budget);
  add_json_flag(command, flags->json);
  command->callback([&action, flags] { action = [flags] { return plan(*flags); }; });
}

}  // namespace neve::app
