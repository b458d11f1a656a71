#include "kv/slot_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace neve::kv {
namespace {

SlotPool make_pool(std::uint64_t bytes, std::uint64_t most, Backing backing = Backing::kMemory) {
  return std::move(SlotPool::create(bytes, most, backing)).value();
}

TEST(SlotPool, LowestFreeFirstAndHeldUpToTheHighest) {
  SlotPool pool = make_pool(512, 1000);
  std::set<std::uint32_t> used;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const bool grow = used.empty() || (random() % 100 < (i / 3000 % 2 == 0 ? 60u : 40u) && used.size() < 1000);
    if (grow) {
      std::uint32_t lowest = 0;
      while (used.count(lowest) != 0) ++lowest;
      const Result<std::uint32_t> slot = pool.allocate();
      ASSERT_TRUE(slot.ok());
      ASSERT_EQ(*slot, lowest);
      used.insert(*slot);
    } else {
      auto at = used.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random() % used.size()));
      pool.free(*at);
      used.erase(at);
    }
    ASSERT_EQ(pool.used(), used.size());
    ASSERT_EQ(pool.held_bytes(), used.empty() ? 0 : (*used.rbegin() + 1) * 512u);
  }
}

TEST(SlotPool, HeldWithAsksAheadWhatHappens) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    SlotPool pool = make_pool(100, 300, Backing::kNone);
    std::vector<std::uint32_t> slots;
    for (int i = 0; i < 60; ++i) slots.push_back(*pool.allocate());
    for (int i = 0; i < 30; ++i) {
      std::swap(slots[random() % slots.size()], slots.back());
      pool.free(slots.back());
      slots.pop_back();
    }
    const std::uint64_t more = random() % 100;
    const std::uint64_t expected = pool.held_with(more);
    for (std::uint64_t i = 0; i < more; ++i) ASSERT_TRUE(pool.allocate().ok());
    EXPECT_EQ(pool.held_bytes(), expected);
  }
}

TEST(SlotPool, SlotsDoNotOverlapAndKeepTheirContents) {
  SlotPool pool = make_pool(257, 500);
  std::vector<std::uint32_t> slots;
  for (int i = 0; i < 500; ++i) {
    slots.push_back(*pool.allocate());
    std::memset(pool.data(slots.back()), i % 251, 257);
  }
  EXPECT_EQ(pool.allocate().status().code(), Code::kExhausted);
  for (int i = 300; i < 500; ++i) pool.free(slots[static_cast<std::size_t>(i)]);
  pool.trim();
  EXPECT_EQ(pool.held_bytes(), 300u * 257u);
  for (int i = 0; i < 300; ++i) {
    for (int b = 0; b < 257; ++b) ASSERT_EQ(pool.data(slots[static_cast<std::size_t>(i)])[b], i % 251);
  }
}

}  // namespace
}  // namespace neve::kv
