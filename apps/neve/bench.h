// The benchmarks of the program.
#pragma once

#include <CLI/CLI.hpp>

#include "program.h"

namespace neve::app {

// The rows of a benchmark when no --kv is given: the peer's caches, then neve's.
inline constexpr const char* kBenchCaches = "llama:f16,llama:q8_0,llama:q4_0,int8,int4,int2";

void add_bench_attend(CLI::App& group, Action& action);
void add_bench_decode(CLI::App& group, Action& action);

}  // namespace neve::app
