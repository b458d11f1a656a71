// neve chat: a conversation on the terminal; keys and values of earlier turns stay in the cache.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "account.h"
#include "generation.h"
#include "interrupt.h"
#include "load.h"
#include "program.h"

namespace neve::app {
namespace {

struct ChatFlags {
  GenerationFlags generation;
  std::string system;
};

// The next line of the user; false at the end, by end of file, /exit or Ctrl-C.
bool ask(std::string* line) {
  if (isatty(STDIN_FILENO) != 0) std::cerr << "> " << std::flush;
  if (!std::getline(std::cin, *line) || interrupted()) return false;
  return *line != "/exit";
}

int chat(const ChatFlags& flags) {
  const GenerationFlags& generation = flags.generation;
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  catch_interrupt();
  const auto model = load_model(generation.model, Weights::kFile);
  if (!model.ok()) return fail(model.status());
  const GenerateOptions options = generate_options(generation, **model);
  const std::string& kv = options.cache.spec.text;
  const auto session = ChatSession::create(**model, options);
  if (!session.ok()) return fail(session.status());
  if (!flags.system.empty()) (*session)->set_system(flags.system);

  Json json = make_report("chat", *machine, (*model)->threads(), options_json(generation, options));
  GenerateCallbacks callbacks;
  callbacks.cancelled = interrupted;
  if (!generation.json) callbacks.text = [](std::string_view piece) { std::cout << piece << std::flush; };
  bool first = true;
  callbacks.started = [&](const GenerateReport& report) {
    if (first) print_start(std::cerr, report, kv);
    first = false;
  };
  GenerateReport last;
  for (std::string line; ask(&line);) {
    if (line.empty()) continue;
    auto report = (*session)->say(line, callbacks);
    if (!report.ok()) return fail(report.status());
    if (!generation.json) std::cout << std::endl;
    json["rows"].push_back(account_json(*report, **model));
    last = std::move(*report);
    if (last.finish == Finish::kBudget) {
      std::cerr << "neve: the budget is full and everything stands at its last rung; the conversation ends here\n";
      break;
    }
    clear_interrupt();  // Ctrl-C ended the answer, not the conversation
  }
  std::cerr << "\nThe last turn, and the cache after " << (*session)->tokens() << " tokens:\n";
  print_account(std::cerr, last, kv, **model, machine->isa);
  if (generation.json) print_json(json);
  return kDone;
}

}  // namespace

void add_chat(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("chat", "a conversation; Ctrl-C ends an answer, /exit the program");
  auto flags = std::make_shared<ChatFlags>();
  add_generation_flags(command, flags->generation);
  command->add_option("--system", flags->system, "how the model should behave");
  command->callback([&action, flags] { action = [flags] { return chat(*flags); }; });
}

}  // namespace neve::app
