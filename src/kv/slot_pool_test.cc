#include "kv/slot_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace neve::kv {
namespace {

SlotPool make_pool(std::uint64_t bytes, std::uint64_t most, Backing backing = Backing::kMemory) {
  return std::move(SlotPool::create(bytes, most, backing)).value();
}

TEST(SlotPool, RandomUseKeepsSlotsApartWholeAndCompact) {
  constexpr std::uint64_t kBytes = 257;
  SlotPool pool = make_pool(kBytes, 1000);
  std::map<std::uint32_t, std::uint8_t> used;
  std::mt19937_64 random(1);
  for (int i = 0; i < 6000; ++i) {
    const bool grow = used.empty() || (random() % 100 < (i / 1000 % 2 == 0 ? 60u : 40u) && used.size() < 1000);
    if (grow) {
      const std::uint64_t expected = pool.held_with(1);
      const Result<std::uint32_t> slot = pool.allocate();
      ASSERT_TRUE(slot.ok());
      ASSERT_EQ(used.count(*slot), 0u);
      ASSERT_EQ(pool.held_bytes(), expected);
      used[*slot] = static_cast<std::uint8_t>(random());
      std::memset(pool.data(*slot), used[*slot], kBytes);
    } else {
      auto at = used.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random() % used.size()));
      const std::uint64_t expected = pool.held_with(-1);
      pool.free(at->first);
      used.erase(at);
      ASSERT_EQ(pool.held_bytes(), expected);
    }
    ASSERT_EQ(pool.used(), used.size());
    ASSERT_EQ(pool.held_bytes(), used.size() * kBytes);
    if (i % 19 != 0) continue;
    pool.trim();
    std::vector<const std::uint8_t*> places;
    for (const auto& [slot, fill] : used) {
      const std::uint8_t* data = pool.data(slot);
      places.push_back(data);
      ASSERT_EQ(data[0], fill);
      ASSERT_EQ(std::memcmp(data, data + 1, kBytes - 1), 0);
    }
    std::sort(places.begin(), places.end());
    for (std::size_t k = 1; k < places.size(); ++k) {
      ASSERT_EQ(places[k] - places[k - 1], static_cast<std::ptrdiff_t>(kBytes)) << "no gaps";
    }
  }
}

TEST(SlotPool, WithoutMemoryItKeepsTheSameBooks) {
  SlotPool real = make_pool(64, 100), plan = make_pool(64, 100, Backing::kNone);
  std::mt19937_64 random(2);
  std::vector<std::uint32_t> slots;
  for (int i = 0; i < 3000; ++i) {
    if (slots.empty() || random() % 2 == 0) {
      const Result<std::uint32_t> a = real.allocate(), b = plan.allocate();
      ASSERT_EQ(a.ok(), b.ok());
      if (!a.ok()) continue;
      ASSERT_EQ(*a, *b);
      slots.push_back(*a);
    } else {
      std::swap(slots[random() % slots.size()], slots.back());
      real.free(slots.back());
      plan.free(slots.back());
      slots.pop_back();
    }
    ASSERT_EQ(real.held_bytes(), plan.held_bytes());
  }
}

TEST(SlotPool, ExhaustedSaysSo) {
  SlotPool pool = make_pool(16, 3);
  const std::uint32_t first = *pool.allocate();
  ASSERT_TRUE(pool.allocate().ok());
  ASSERT_TRUE(pool.allocate().ok());
  EXPECT_EQ(pool.allocate().status().code(), Code::kExhausted);
  pool.free(first);
  EXPECT_TRUE(pool.allocate().ok());
}

}  // namespace
}  // namespace neve::kv
