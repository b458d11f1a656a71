#include "neve/machine.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "simd/isa.h"

namespace neve {
namespace {

// The first "model name" of /proc/cpuinfo; ARM machines often have none.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "aarch64";
#elif defined(__x86_64__)
  return "x86_64";
#else
  return "unknown";
#endif
}

// A container may own fewer cores than the machine has.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? static_cast<int>(cores) : 1;
}

std::uint64_t physical_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

}  // namespace

Result<MachineInfo> machine_info() {
  const Result<const simd::Kernels*> kernels = simd::select_kernels();
  if (!kernels.ok()) return kernels.status();
  MachineInfo info;
  info.version = NEVE_VERSION;
#if defined(__clang__)
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "gcc " __VERSION__;
#endif
  info.cpu = cpu_name();
  info.isa = (*kernels)->name;
  info.threads = usable_cores();
  info.memory_bytes = physical_memory_bytes();
  for (const simd::IsaEntry& isa : simd::isa_table())
    info.isas.push_back({isa.name, isa.needs, isa.compiled, isa.runs});
  return info;
}

}  // namespace neve
