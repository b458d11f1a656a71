// The JSON object that every subcommand prints with --json: neve, command, machine, options, rows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "neve/machine.h"

namespace neve::app {

using Json = nlohmann::ordered_json;

// `threads` as used by this run. Rows are for the caller to add.
Json make_report(const std::string& command, const MachineInfo& machine, int threads, Json options);

// To stdout, one object, indented. Text that is not UTF-8 (a token may end inside a character) is replaced, not refused.
void print_json(const Json& report);

}  // namespace neve::app
