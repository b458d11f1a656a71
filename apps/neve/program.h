// The program: a tree of subcommands, each in a file of its own that adds itself, and what they share at the end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "neve/status.h"

namespace neve::app {

// Exit codes.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// What the command line asked for: set while it is parsed, run after it was understood as a whole.
// Returns: an exit code.
using Action = std::function<int()>;

void add_run(CLI::App& program, Action& action);
void add_chat(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);
void add_info(CLI::App& program, Action& action);

// Says on stderr what went wrong. Returns: kWrongUsage for what the user should not have asked, else kFailed.
int fail(const Status& status);

}  // namespace neve::app
