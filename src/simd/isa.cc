#include "simd/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>

namespace neve::simd {
namespace {

constexpr Kernels kScalar = {"scalar", &kAttendScalar, &kCodingScalar, &kTileScalar};
#if defined(__x86_64__)
constexpr Kernels kAvx2 = {"avx2", &kAttendAvx2, &kCodingAvx2, &kTileAvx2};
constexpr Kernels kAvx512 = {"avx512", &kAttendAvx512, &kCodingAvx512, &kTileAvx512};
// Not every compiler's __builtin_cpu_supports knows F16C: leaf 1, ecx, bit 29.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vnni") != 0;
}
#elif defined(__aarch64__)
constexpr Kernels kNeon = {"neon", &kAttendNeon, &kCodingNeon, &kTileNeon};
#endif

std::vector<IsaEntry> make_table() {
  std::vector<IsaEntry> table;
  table.push_back({"scalar", "nothing", true, true, &kScalar});
#if defined(__x86_64__)
  table.push_back({"avx2", "AVX2 FMA F16C", true, has_avx2(), &kAvx2});
  table.push_back({"avx512", "AVX-512 F BW VL DQ VNNI", true, has_avx512(), &kAvx512});
  table.push_back({"neon", "ARMv8.2 dot product", false, false, nullptr});
#elif defined(__aarch64__)
  table.push_back({"avx2", "AVX2 FMA F16C", false, false, nullptr});
  table.push_back({"avx512", "AVX-512 F BW VL DQ VNNI", false, false, nullptr});
  table.push_back({"neon", "ARMv8.2 dot product", true, true, &kNeon});
#endif
  return table;
}

}  // namespace

const std::vector<IsaEntry>& isa_table() {
  static const std::vector<IsaEntry> table = make_table();
  return table;
}

Result<const Kernels*> kernels_by_name(const std::string& name) {
  const Kernels* widest = nullptr;
  std::string running;
  for (const IsaEntry& isa : isa_table()) {
    if (!isa.runs) continue;
    if (isa.name == name) return isa.kernels;
    widest = isa.kernels;
    running += (running.empty() ? "" : ", ") + isa.name;
  }
  if (name.empty()) return widest;
  return Status(Code::kInvalidArgument,
                "NEVE_ISA: wanted one of those that run here (" + running + "), got \"" + name + "\"");
}

Result<const Kernels*> select_kernels() {
  static const Result<const Kernels*> selected = [] {
    const char* wanted = std::getenv("NEVE_ISA");
    return kernels_by_name(wanted != nullptr ? wanted : "");
  }();
  return selected;
}

}  // namespace neve::simd
