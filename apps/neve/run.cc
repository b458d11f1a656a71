// neve run: text from a model, its cache inside a byte budget.
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "account.h"
#include "generation.h"
#include "interrupt.h"
#include "load.h"
#include "program.h"
#include "progress.h"

namespace neve::app {
namespace {

struct RunFlags {
  GenerationFlags generation;
  std::string prompt;
  std::string file;  // "-" = standard input
  bool chat = false;
};

Result<std::string> read_all(const std::string& path) {
  if (path == "-") return std::string((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(Code::kNotFound, "cannot open " + path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

Result<std::string> prompt_of(const RunFlags& flags, const Model& model) {
  Result<std::string> text = flags.file.empty() ? Result<std::string>(flags.prompt) : read_all(flags.file);
  if (!text.ok() || !flags.chat) return text;
  const Model::Message message = {"user", *text};
  return model.chat_prompt({&message, 1});
}

int run(const RunFlags& flags) {
  const GenerationFlags& generation = flags.generation;
  const auto machine = machine_info();
  if (!machine.ok()) return fail(machine.status());
  catch_interrupt();
  const auto model = load_model(generation.model, Weights::kFile);
  if (!model.ok()) return fail(model.status());
  const auto prompt = prompt_of(flags, **model);
  if (!prompt.ok()) return fail(prompt.status());

  const GenerateOptions options = generate_options(generation, **model);
  const std::string& kv = options.cache.spec.text;
  Progress progress("reading the prompt");
  GenerateCallbacks callbacks;
  callbacks.started = [&kv](const GenerateReport& report) { print_start(std::cerr, report, kv); };
  callbacks.prefill = [&progress](std::int64_t done, std::int64_t of) {
    progress.update(static_cast<double>(done) / static_cast<double>(of));
    if (done == of) progress.finish();
  };
  callbacks.cancelled = interrupted;
  if (!generation.json) callbacks.text = [](std::string_view piece) { std::cout << piece << std::flush; };
  const auto report = generate(**model, *prompt, options, callbacks);
  progress.finish();
  if (!report.ok()) return fail(report.status());

  if (!generation.json) std::cout << std::endl;
  print_account(std::cerr, *report, kv, **model, machine->isa);
  if (generation.json) {
    Json json = make_report("run", *machine, (*model)->threads(), options_json(generation, options));
    json["rows"].push_back(account_json(*report, **model));
    print_json(json);
  }
  return kDone;
}

}  // namespace

void add_run(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("run", "text from a model, its cache inside a byte budget");
  auto flags = std::make_shared<RunFlags>();
  add_generation_flags(command, flags->generation);
  CLI::Option_group* prompt = command->add_option_group("prompt");
  prompt->add_option("-p,--prompt", flags->prompt, "the text to go on from");
  prompt->add_option("-f,--file", flags->file, "a file with that text; - for standard input");
  prompt->require_option(1);
  command->add_flag("--chat", flags->chat, "put the text into the model's chat template, as a user's message");
  command->callback([&action, flags] { action = [flags] { return run(*flags); }; });
}

}  // namespace neve::app
