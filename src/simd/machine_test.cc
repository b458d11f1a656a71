#include "neve/machine.h"

#include <gtest/gtest.h>

#include "simd/isa.h"

namespace neve {
namespace {

TEST(MachineInfo, NamesTheKernelsThatRun) {
  const Result<MachineInfo> info = machine_info();
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->isa, (*simd::select_kernels())->name);
  EXPECT_FALSE(info->cpu.empty());
  EXPECT_GE(info->threads, 1);
  bool found = false;
  for (const MachineInfo::Isa& isa : info->isas) {
    EXPECT_TRUE(isa.compiled || !isa.runs) << isa.name << " cannot run without having been compiled";
    found |= isa.name == info->isa && isa.runs;
  }
  EXPECT_TRUE(found) << info->isa << " is not in the table as one that runs";
}

}  // namespace
}  // namespace neve
