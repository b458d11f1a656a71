#include "bench.h"

namespace neve::app {

void add_bench(CLI::App& program, Action& action) {
  CLI::App* group = program.add_subcommand("bench", "speed side by side with ggml and llama.cpp: attend, decode");
  group->require_subcommand(1);
  add_bench_attend(*group, action);
  add_bench_decode(*group, action);
}

}  // namespace neve::app
