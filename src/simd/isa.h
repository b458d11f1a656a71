// Which instruction sets this build has, which of them this machine runs, and which one is used.
//
// Thread rules: all functions may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "neve/status.h"
#include "simd/attend_kernels.h"
#include "simd/coding_kernels.h"
#include "simd/tile_kernels.h"

namespace neve::simd {

// The kernels of one instruction set.
struct Kernels {
  const char* name;  // "scalar", "avx2", "avx512", "neon"
  const AttendKernels* attend;
  const CodingKernels* coding;
  const TileKernels* tile;
};

struct IsaEntry {
  std::string name;
  std::string needs;  // the CPU features it wants
  bool compiled = false;
  bool runs = false;  // compiled, and this machine has what it needs
  const Kernels* kernels = nullptr;
};

// All instruction sets neve knows, the widest last.
const std::vector<IsaEntry>& isa_table();

// The kernels in use: the widest that runs, or the one NEVE_ISA names (read once).
// Errors: kInvalidArgument for a name that is unknown or does not run here, with the list of those that do.
Result<const Kernels*> select_kernels();

// The same for a given name; empty = the widest that runs.
Result<const Kernels*> kernels_by_name(const std::string& name);

}  // namespace neve::simd
