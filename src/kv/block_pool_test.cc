#include "kv/block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace neve::kv {
namespace {

using Random = std::mt19937_64;

BlockPool make_pool(std::uint64_t top_bytes, int orders, std::uint64_t most_tops, Backing backing) {
  return std::move(BlockPool::create(top_bytes, orders, most_tops, backing)).value();
}

// What a pool should hold, by the plainest means.
class Model {
 public:
  explicit Model(BlockPool* pool) : pool_(pool) {}

  void allocate(int order, std::uint8_t fill) {
    Result<BlockHandle> handle = pool_->allocate(order);
    ASSERT_TRUE(handle.ok()) << handle.status().message();
    ASSERT_EQ(blocks_.count(*handle), 0u) << "a handle in use was given again";
    blocks_[*handle] = {order, fill};
    std::memset(pool_->data(*handle), fill, pool_->bytes(order));
    units_ += pool_->units(order);
  }
  void free(std::size_t which) {
    auto block = std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(which % blocks_.size()));
    units_ -= pool_->units(block->second.order);
    pool_->free(block->first);
    blocks_.erase(block);
  }
  std::size_t size() const { return blocks_.size(); }
  std::uint64_t units() const { return units_; }

  void expect_consistent() const {
    ASSERT_EQ(pool_->used_units(), units_);
    const std::uint64_t per_top = pool_->units_per_top();
    ASSERT_EQ(pool_->tops(), (units_ + per_top - 1) / per_top) << "not compact";
    ASSERT_EQ(pool_->held_bytes(), pool_->tops() * pool_->top_bytes());
    std::map<const std::uint8_t*, const std::uint8_t*> ranges;
    for (const auto& [handle, block] : blocks_) {
      const std::uint8_t* data = pool_->data(handle);
      const std::uint64_t bytes = pool_->bytes(block.order);
      ASSERT_EQ(pool_->order(handle), block.order);
      ASSERT_EQ(data[0], block.fill);
      ASSERT_EQ(std::memcmp(data, data + 1, bytes - 1), 0) << "contents changed";
      ranges[data] = data + bytes;
    }
    ASSERT_EQ(ranges.size(), blocks_.size());
    const std::uint8_t* end = nullptr;
    for (const auto& [from, to] : ranges) {
      ASSERT_GE(from, end) << "blocks overlap";
      end = to;
    }
  }

 private:
  struct Block {
    int order;
    std::uint8_t fill;
  };
  BlockPool* pool_;
  std::map<BlockHandle, Block> blocks_;
  std::uint64_t units_ = 0;
};

TEST(BlockPool, RandomUseKeepsBlocksApartWholeAndCompact) {
  for (const int orders : {1, 2, 4, 5}) {
    BlockPool pool = make_pool(4096, orders, 300, Backing::kMemory);
    Model model(&pool);
    Random random(static_cast<std::uint64_t>(orders));
    for (int i = 0; i < 4000; ++i) {
      // Grows, shrinks, grows: all sizes mixed.
      const bool grow = model.size() == 0 || (random() % 100 < (i / 700 % 2 == 0 ? 65u : 35u) && model.units() < 2000);
      if (grow) {
        model.allocate(static_cast<int>(random() % static_cast<unsigned>(orders)), static_cast<std::uint8_t>(random()));
      } else {
        model.free(random());
      }
      if (i % 13 == 0) model.expect_consistent();
      if (i % 101 == 0) pool.trim();
      if (HasFatalFailure()) return;
    }
    while (model.size() > 0) {
      model.free(random());
      if (model.size() % 7 == 0) model.expect_consistent();
    }
    EXPECT_EQ(pool.tops(), 0u);
    EXPECT_EQ(pool.used_units(), 0u);
  }
}

// The ladder's own pattern: relocate a block into a narrower one, then free the old one, until all are smallest.
TEST(BlockPool, DemotingAllGivesSevenEighthsBack) {
  BlockPool pool = make_pool(2048, 4, 200, Backing::kMemory);
  std::vector<BlockHandle> blocks;
  for (int i = 0; i < 160; ++i) blocks.push_back(*pool.allocate(0));
  EXPECT_EQ(pool.tops(), 160u);
  Random random(9);
  for (int order = 1; order < 4; ++order) {
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (BlockHandle& block : blocks) {
      const std::uint64_t before = pool.tops();
      const BlockHandle narrower = *pool.allocate(order);
      EXPECT_LE(pool.tops(), before + 1) << "one spare top block is enough";
      pool.free(block);
      EXPECT_LE(pool.tops(), before);
      block = narrower;
    }
    EXPECT_EQ(pool.tops(), 160u >> order);
  }
}

TEST(BlockPool, TopsWithAsksAheadWhatHappens) {
  BlockPool pool = make_pool(1024, 4, 100, Backing::kNone);
  Random random(10);
  std::vector<BlockHandle> blocks;
  for (int i = 0; i < 500; ++i) {
    const int order = static_cast<int>(random() % 4);
    if (blocks.size() < 3 || random() % 2 == 0) {
      const std::uint64_t expected = pool.tops_with(static_cast<std::int64_t>(pool.units(order)));
      blocks.push_back(*pool.allocate(order));
      ASSERT_EQ(pool.tops(), expected);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const std::uint64_t expected = pool.tops_with(-static_cast<std::int64_t>(pool.units(pool.order(blocks.back()))));
      pool.free(blocks.back());
      blocks.pop_back();
      ASSERT_EQ(pool.tops(), expected);
    }
  }
}

TEST(BlockPool, WithoutMemoryItKeepsTheSameBooks) {
  BlockPool real = make_pool(4096, 4, 100, Backing::kMemory), plan = make_pool(4096, 4, 100, Backing::kNone);
  Random random(11);
  std::vector<BlockHandle> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.empty() || random() % 3 != 0) {
      const int order = static_cast<int>(random() % 4);
      const Result<BlockHandle> a = real.allocate(order), b = plan.allocate(order);
      ASSERT_EQ(a.ok(), b.ok());
      if (!a.ok()) {
        EXPECT_EQ(a.status().code(), Code::kExhausted);
        continue;
      }
      ASSERT_EQ(*a, *b);
      blocks.push_back(*a);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      real.free(blocks.back());
      plan.free(blocks.back());
      blocks.pop_back();
    }
    ASSERT_EQ(real.tops(), plan.tops());
    ASSERT_EQ(real.used_units(), plan.used_units());
  }
}

TEST(BlockPool, ExhaustedSaysSoAndChangesNothing) {
  BlockPool pool = make_pool(1024, 4, 3, Backing::kMemory);
  std::vector<BlockHandle> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(*pool.allocate(0));
  for (int order = 0; order < 4; ++order) {
    const Result<BlockHandle> more = pool.allocate(order);
    ASSERT_FALSE(more.ok());
    EXPECT_EQ(more.status().code(), Code::kExhausted);
    EXPECT_NE(more.status().message().find(std::to_string(1024 >> order)), std::string::npos);
    EXPECT_EQ(pool.tops(), 3u);
    EXPECT_EQ(pool.used_units(), 24u);
  }
  pool.free(blocks[1]);
  EXPECT_TRUE(pool.allocate(3).ok());
  EXPECT_TRUE(pool.allocate(1).ok());
  EXPECT_TRUE(pool.allocate(2).ok());
  EXPECT_TRUE(pool.allocate(3).ok());
  EXPECT_FALSE(pool.allocate(3).ok());
}

TEST(BlockPool, TooManyUnitsAreRefused) {
  const Result<BlockPool> pool = BlockPool::create(1 << 20, 4, std::uint64_t{1} << 30, Backing::kNone);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), Code::kExhausted);
}

// Bytes of [from, from + bytes) that are in memory, by the system's own account.
std::uint64_t resident(const std::uint8_t* from, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t pages = (bytes + page - 1) / page;
  std::vector<unsigned char> in(pages);
  EXPECT_EQ(mincore(const_cast<std::uint8_t*>(from), bytes, in.data()), 0);
  return page * static_cast<std::uint64_t>(std::count_if(in.begin(), in.end(), [](unsigned char c) { return c & 1; }));
}

// Memory of freed top blocks goes back, also where a top block is no multiple of a memory page, or less than one.
TEST(BlockPool, MemoryReallyGoesBack) {
  for (const std::uint64_t top :
       {std::uint64_t{16384}, std::uint64_t{17408}, std::uint64_t{1024}, std::uint64_t{147456}}) {
    const std::uint64_t count = (8u << 20) / top;
    BlockPool pool = make_pool(top, 4, count, Backing::kMemory);
    std::vector<BlockHandle> blocks;
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back(*pool.allocate(0));
      std::memset(pool.data(blocks.back()), 1, top);
    }
    const std::uint8_t* base = pool.data(blocks[0]);
    EXPECT_GE(resident(base, count * top), count * top);
    // All but the first tenth, in no order.
    Random random(12);
    std::shuffle(blocks.begin() + static_cast<std::ptrdiff_t>(count / 10), blocks.end(), random);
    while (blocks.size() > count / 10) {
      pool.free(blocks.back());
      blocks.pop_back();
      if (blocks.size() % 64 == 0) pool.trim();
    }
    pool.trim();
    EXPECT_EQ(pool.held_bytes(), count / 10 * top);
    EXPECT_LE(resident(base, count * top), pool.held_bytes() + 3 * 4096) << "top block of " << top;
    for (const BlockHandle block : blocks) EXPECT_EQ(pool.data(block)[top - 1], 1);
  }
}

}  // namespace
}  // namespace neve::kv
