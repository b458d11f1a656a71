// Flags that several subcommands share, understood while the command line is parsed: a bad value is wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "neve/kv_cache.h"
#include "neve/kv_spec.h"
#include "neve/model.h"

namespace neve::app {

struct ModelFlags {
  std::string path;
  int threads = 0;  // 0 = all cores
  bool verbose = false;
};
void add_model_flags(CLI::App* command, ModelFlags& flags);  // -m, -t, --verbose
void add_threads_flag(CLI::App* command, int& threads);      // -t alone

void add_json_flag(CLI::App* command, bool& json);

// --kv with one spec. Peers are refused: only eval and bench run them.
struct KvFlag {
  KvSpec spec;
};
void add_kv_flag(CLI::App* command, KvFlag& flag);

// --kv with a list of specs.
struct KvListFlag {
  std::vector<KvSpec> specs;
  std::vector<std::string> texts() const;
};
void add_kv_list_flag(CLI::App* command, KvListFlag& flag, const std::string& default_list);

// --budget and --demote.
struct BudgetFlags {
  std::uint64_t bytes = 0;  // 0 = none
  Demote demote = Demote::kPage;
  const char* demote_name() const { return demote == Demote::kPage ? "page" : "layer"; }
};
void add_budget_flags(CLI::App* command, BudgetFlags& flags);

// A list of whole numbers: --depth 0,4096.
void add_numbers_flag(CLI::App* command, const std::string& name, std::vector<std::int64_t>& numbers,
                      const std::string& what);

}  // namespace neve::app
