// What this program runs on and was built with: `neve info`, and the `machine` object of every JSON report.
//
// Thread rules: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "neve/status.h"

namespace neve {

struct MachineInfo {
  std::string version;             // of neve
  std::string compiler;            // that built this program
  std::string cpu;                 // model name as the system says it
  std::string isa;                 // instruction set of the kernels that run: "avx512", "avx2", "neon", "scalar"
  int threads = 1;                 // cores that this process may use: the default of every -t
  std::uint64_t memory_bytes = 0;  // physical memory; 0 = unknown

  struct Isa {
    std::string name;
    std::string needs;      // the CPU features it wants
    bool compiled = false;  // kernels for it are in this program
    bool runs = false;      // compiled, and this CPU has what it needs
  };
  std::vector<Isa> isas;  // all that neve knows, the widest last
};

// Errors: kInvalidArgument when the environment variable NEVE_ISA names an instruction set that is unknown or does not
// run here, with the list of those that do.
Result<MachineInfo> machine_info();

// Versions of the llama.cpp libraries that this process is linked to; in neve's model half only.
struct LlamaVersion {
  std::string llama, ggml;
  std::string cpu_features;  // that ggml was compiled for
};
LlamaVersion llama_version();

}  // namespace neve
