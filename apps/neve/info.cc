// neve info: version, instruction sets, llama.cpp, what is compiled in.
#include <iostream>
#include <memory>

#include "flags.h"
#include "neve/machine.h"
#include "program.h"
#include "report.h"
#include "table.h"

namespace neve::app {
namespace {

Json row_of(const MachineInfo& machine, const LlamaVersion& llama) {
  Json isas = Json::array();
  for (const MachineInfo::Isa& isa : machine.isas) {
    isas.push_back({{"name", isa.name}, {"needs", isa.needs}, {"compiled", isa.compiled}, {"runs", isa.runs}});
  }
  return {{"compiler", machine.compiler}, {"memory_bytes", machine.memory_bytes},
          {"isas", std::move(isas)},      {"llama_cpp", llama.llama},
          {"ggml", llama.ggml},           {"ggml_features", llama.cpu_features}};
}

int info(bool as_json) {
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  const LlamaVersion llama = llama_version();
  if (as_json) {
    Json report = make_report("info", *machine, machine->threads, Json::object());
    report["rows"].push_back(row_of(*machine, llama));
    print_json(report);
    return kDone;
  }
  std::cout << "neve " << machine->version << ", built by " << machine->compiler << "\n"
            << machine->cpu << ", " << machine->threads << " cores, " << format_bytes(machine->memory_bytes) << "\n\n";
  Table table({{"ISA", Align::kLeft},
               {"compiled in", Align::kLeft},
               {"runs here", Align::kLeft},
               {"used", Align::kLeft},
               {"needs", Align::kLeft}});
  for (const MachineInfo::Isa& isa : machine->isas) {
    table.add({isa.name, isa.compiled ? "yes" : "no", isa.runs ? "yes" : "no", isa.name == machine->isa ? "*" : "",
               isa.needs});
  }
  table.print(std::cout);
  std::cout << "\nllama.cpp " << llama.llama << ", ggml " << llama.ggml << "\n" << llama.cpu_features << "\n";
  return kDone;
}

}  // namespace

void add_info(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("info", "version, instruction sets, llama.cpp, what is compiled in");
  auto as_json = std::make_shared<bool>(false);
  add_json_flag(command, *as_json);
  command->callback([&action, as_json] { action = [as_json] { return info(*as_json); }; });
}

}  // namespace neve::app
