#include <algorithm>
#include <iostream>
#include <string_view>

#include "neve/machine.h"
#include "program.h"

namespace {

using neve::app::Action;
using neve::app::kWrongUsage;

// "run, chat, plan": the subcommands that stand directly under `command`.
std::string names_under(const CLI::App& command) {
  std::string names;
  for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + child->get_name();
  }
  return names;
}

// Walks down the words that must be subcommands. Returns: what is wrong with one, empty if nothing.
// CLI11 would only say that an argument was not expected.
std::string unknown_command(const CLI::App& program, int argc, char** argv) {
  const CLI::App* command = &program;
  std::string path = program.get_name();
  for (int i = 1; i < argc; ++i) {
    const auto children = command->get_subcommands([](const CLI::App*) { return true; });
    const std::string_view word = argv[i];
    if (children.empty() || word.starts_with("-")) return "";
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const CLI::App* candidate) { return candidate->get_name() == word; });
    if (child == children.end()) {
      return path + ": unknown command \"" + std::string(word) + "\"; there are: " + names_under(*command);
    }
    command = *child;
    path += " " + command->get_name();
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Language models inside a byte budget: a progressive mixed-precision KV cache", "neve");
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::help);
  program.set_version_flag("--version", [] { return std::string("neve ") + NEVE_VERSION; });
  Action action;
  neve::app::add_run(program, action);
  neve::app::add_chat(program, action);
  neve::app::add_plan(program, action);
  neve::app::add_eval(program, action);
  neve::app::add_bench(program, action);
  neve::app::add_info(program, action);

  if (const std::string unknown = unknown_command(program, argc, argv); !unknown.empty()) {
    std::cerr << unknown << "\n";
    return kWrongUsage;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return program.exit(wanted);
  } catch (const CLI::ParseError& error) {
    std::cerr << "neve: " << error.what() << "\n";
    if (argc > 1) {
      std::cerr << "Run with --help for the options.\n";
    } else {
      std::cerr << program.help();
    }
    return kWrongUsage;
  }
  return action();
}
