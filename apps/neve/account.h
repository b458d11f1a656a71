// The account of a generation: what `run` and `chat` say about it, for people and as a JSON row.
#pragma once

#include <ostream>
#include <string>

#include "neve/generate.h"
#include "neve/model.h"
#include "report.h"

namespace neve::app {

// One line at the start: prompt, cache, budget, capacity.
void print_start(std::ostream& out, const GenerateReport& report, const std::string& kv);

// A few lines at the end: tokens, speed, bytes by rung, demotions, peak, capacity, ISA.
void print_account(std::ostream& out, const GenerateReport& report, const std::string& kv, const Model& model,
                   const std::string& isa);

// The row of `run`.
Json account_json(const GenerateReport& report, const Model& model);

}  // namespace neve::app
