#include "simd/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace neve::simd {
namespace {

TEST(Isa, TableListsAllOfThem) {
  std::set<std::string> names;
  for (const IsaEntry& isa : isa_table()) {
    names.insert(isa.name);
    EXPECT_FALSE(isa.needs.empty());
    if (isa.runs) {
      EXPECT_TRUE(isa.compiled);
    }
    EXPECT_EQ(isa.compiled, isa.kernels != nullptr) << isa.name;
    if (isa.kernels != nullptr) {
      EXPECT_EQ(isa.name, isa.kernels->name);
    }
  }
  EXPECT_EQ((std::set<std::string>{"scalar", "avx2", "avx512", "neon"}), names);
  EXPECT_TRUE(isa_table().front().name == "scalar" && isa_table().front().runs);
}

TEST(Isa, KernelsAreDistinctAndComplete) {
  std::set<const void*> seen;
  for (const IsaEntry& isa : isa_table()) {
    if (!isa.compiled) continue;
    const auto& [name, attend, coding, tile] = *isa.kernels;
    EXPECT_TRUE(attend->score_codes && attend->weigh_codes && attend->fold_keys && attend->fold_values &&
                attend->score_f16 && attend->weigh_f16 && attend->max && attend->exp_sum)
        << name;
    EXPECT_TRUE(coding->f32_from_f16 && coding->f16_from_f32 && coding->column_range && coding->row_range &&
                coding->quantize_columns && coding->quantize_rows && coding->narrow_8_to_4 && coding->narrow_4_to_2 &&
                coding->rotate_rows)
        << name;
    EXPECT_TRUE(tile->multiply && tile->expand_keys && tile->expand_values && tile->transpose_f16) << name;
    EXPECT_TRUE(seen.insert(reinterpret_cast<const void*>(attend->score_codes)).second) << name;
    EXPECT_TRUE(seen.insert(reinterpret_cast<const void*>(coding->quantize_rows)).second) << name;
    EXPECT_TRUE(seen.insert(reinterpret_cast<const void*>(tile->multiply)).second) << name;
  }
}

TEST(Isa, ByName) {
  const Kernels* widest = nullptr;
  for (const IsaEntry& isa : isa_table()) {
    const Result<const Kernels*> got = kernels_by_name(isa.name);
    EXPECT_EQ(isa.runs, got.ok()) << isa.name;
    if (!isa.runs) continue;
    EXPECT_EQ(isa.kernels, *got);
    widest = isa.kernels;
  }
  const Result<const Kernels*> chosen = kernels_by_name("");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(widest, *chosen);
}

TEST(Isa, UnknownNameIsAnErrorThatListsThoseThatRun) {
  for (const char* name : {"sse9", "AVX2", "scalar "}) {
    const Result<const Kernels*> got = kernels_by_name(name);
    ASSERT_FALSE(got.ok()) << name;
    EXPECT_EQ(Code::kInvalidArgument, got.status().code());
    const std::string& message = got.status().message();
    EXPECT_NE(std::string::npos, message.find(name)) << message;
    for (const IsaEntry& isa : isa_table()) {
      const bool listed = message.find(isa.name) != std::string::npos && isa.name != "neon";
      if (isa.name != "neon") {
        EXPECT_EQ(isa.runs, listed) << isa.name << " in: " << message;
      }
    }
  }
}

// Under `NEVE_ISA=x` the suite really runs with x.
TEST(Isa, EnvironmentForces) {
  const Result<const Kernels*> selected = select_kernels();
  ASSERT_TRUE(selected.ok()) << selected.status().message();
  const char* wanted = std::getenv("NEVE_ISA");
  const Result<const Kernels*> expected = kernels_by_name(wanted != nullptr ? wanted : "");
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(*expected, *selected);
  if (wanted != nullptr && *wanted != '\0') {
    EXPECT_STREQ(wanted, (*selected)->name);
  }
}

}  // namespace
}  // namespace neve::simd
