#include "flags.h"

#include <charconv>
#include <sstream>

namespace neve::app {
namespace {

// Stops the parsing with the library's own words.
[[noreturn]] void refuse(const std::string& flag, const Status& status) {
  throw CLI::ValidationError(flag, status.message());
}

std::vector<std::int64_t> parse_numbers(const std::string& flag, const std::string& list) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size() || number < 0) {
      throw CLI::ValidationError(flag, "wanted whole numbers with commas between, got \"" + list + "\"");
    }
    numbers.push_back(number);
  }
  if (numbers.empty()) throw CLI::ValidationError(flag, "wanted at least one number");
  return numbers;
}

}  // namespace

void add_threads_flag(CLI::App* command, int& threads) {
  command->add_option("-t,--threads", threads, "threads (default: as many as there are cores)")
      ->check(CLI::Range(1, 1024));
}

void add_model_flags(CLI::App* command, ModelFlags& flags) {
  command->add_option("-m,--model", flags.path, "a GGUF file")->required();
  add_threads_flag(command, flags.threads);
  command->add_flag("--verbose", flags.verbose, "let llama.cpp talk on stderr");
}

void add_json_flag(CLI::App* command, bool& json) {
  command->add_flag("--json", json, "print the results as one JSON object");
}

void add_kv_flag(CLI::App* command, KvFlag& flag) {
  const auto take = [&flag](const std::string& text) {
    auto spec = parse_kv_spec(text);
    if (!spec.ok()) refuse("--kv", spec.status());
    if (spec->mode == KvMode::kPeer) {
      throw CLI::ValidationError("--kv", text + " is llama.cpp's own cache: only eval and bench run it");
    }
    flag.spec = *spec;
  };
  command
      ->add_option_function<std::string>("--kv", take,
                                         "the cache: auto, auto:W, f16, int8, int4, int2, graded:W, pm:8, pm:4, pm:2")
      ->default_str("auto");
}

std::vector<std::string> KvListFlag::texts() const {
  std::vector<std::string> texts;
  for (const KvSpec& spec : specs) texts.push_back(spec.text);
  return texts;
}

void add_kv_list_flag(CLI::App* command, KvListFlag& flag, const std::string& default_list) {
  const auto take = [&flag](const std::string& text) {
    auto specs = parse_kv_specs(text);
    if (!specs.ok()) refuse("--kv", specs.status());
    flag.specs = std::move(*specs);
  };
  command->add_option_function<std::string>("--kv", take, "caches, with commas between; llama:f16|q8_0|q4_0 are peers")
      ->default_str(default_list);
  take(default_list);
}

void add_budget_flags(CLI::App* command, BudgetFlags& flags) {
  const auto take_budget = [&flags](const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (!bytes.ok()) refuse("--budget", bytes.status());
    if (*bytes == 0) throw CLI::ValidationError("--budget", "0 bytes hold nothing; leave it out for no budget");
    flags.bytes = *bytes;
  };
  command->add_option_function<std::string>("--budget", take_budget, "bytes that the cache may hold: 256MiB, 2GiB");
  const auto take_demote = [&flags](const std::string& text) {
    if (text != "page" && text != "layer") {
      throw CLI::ValidationError("--demote", "wanted page or layer, got \"" + text + "\"");
    }
    flags.demote = text == "page" ? Demote::kPage : Demote::kLayer;
  };
  command->add_option_function<std::string>("--demote", take_demote, "what moves to a narrower rung: page or layer")
      ->default_str("page");
}

void add_numbers_flag(CLI::App* command, const std::string& name, std::vector<std::int64_t>& numbers,
                      const std::string& what) {
  const auto take = [&numbers, name](const std::string& text) { numbers = parse_numbers(name, text); };
  std::string default_list;
  for (const std::int64_t number : numbers) default_list += (default_list.empty() ? "" : ",") + std::to_string(number);
  command->add_option_function<std::string>(name, take, what)->default_str(default_list);
}

}  // namespace neve::app
