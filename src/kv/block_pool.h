// Blocks of a cache: a buddy allocator whose largest block is the 16-bit block of one geometry, so that a block on a
// narrower rung is a half, a quarter or an eighth of it.
//
// Compact: below the top order at most one free block per order exists. When a second one appears and the two are not
// buddies, the neighbour of one is moved into the other. So `tops()` is always the used units rounded up to whole top
// blocks, and a handle, not an address, names a block. With `orders` = 1 it is a slab of equal blocks.
// Without backing (planning) it does the same bookkeeping and holds no memory.
// Thread rules: data() from any thread while nobody allocates or frees; the rest by one thread.
// Cost: O(1) per call, plus the bytes of a move.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/address_space.h"
#include "neve/status.h"

namespace neve::kv {

using BlockHandle = std::uint32_t;
inline constexpr BlockHandle kNoBlock = 0xffffffffu;

enum class Backing { kMemory, kNone };

class BlockPool {
 public:
  // top_bytes: of the largest block; order k has top_bytes >> k. most_tops: address space to reserve.
  // Errors: kExhausted.
  static Result<BlockPool> create(std::uint64_t top_bytes, int orders, std::uint64_t most_tops, Backing backing);

  // A block of order `order`, contents undefined. Errors: kExhausted when most_tops are in use.
  Result<BlockHandle> allocate(int order);
  void free(BlockHandle handle);

  std::uint8_t* data(BlockHandle handle) const {
    return space_.data() + static_cast<std::uint64_t>(blocks_[handle].unit) * unit_bytes_;
  }
  int order(BlockHandle handle) const { return blocks_[handle].order; }
  std::uint64_t bytes(int order) const { return top_bytes_ >> order; }

  // Top blocks that hold at least one used block, and units (smallest blocks) in use.
  std::uint64_t tops() const { return tops_; }
  std::uint64_t used_units() const { return used_units_; }
  std::uint64_t units_per_top() const { return std::uint64_t{1} << (orders_ - 1); }
  std::uint64_t units(int order) const { return units_per_top() >> order; }
  // Tops that `units` more units would need in all.
  std::uint64_t tops_with(std::int64_t more_units) const;
  std::uint64_t top_bytes() const { return top_bytes_; }
  std::uint64_t held_bytes() const { return tops_ * top_bytes_; }
  std::uint64_t metadata_bytes() const;

  // Gives the memory of free top blocks back to the system, and gathers that of the others.
  void trim();

 private:
  struct Block {
    std::uint32_t unit = 0;
    std::uint32_t order = 0;
  };
  static constexpr std::uint32_t kNoUnit = 0xffffffffu;

  std::uint32_t take(int order);             // a free region; its first unit
  void give(std::uint32_t unit, int order);  // a region becomes free
  void move_region(std::uint32_t from, std::uint32_t to, int order);

  AddressSpace space_;
  std::uint64_t top_bytes_ = 0, unit_bytes_ = 0, most_tops_ = 0;
  int orders_ = 1;
  std::vector<Block> blocks_;  // by handle
  std::vector<BlockHandle> free_handles_;
  std::vector<BlockHandle> owner_;        // by unit: the block that starts there
  std::vector<std::uint32_t> lone_free_;  // by order > 0: the free region, or kNoUnit
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_tops_;  // lowest first
  std::uint32_t fresh_tops_ = 0;  // tops never used so far start here
  std::uint64_t tops_ = 0, used_units_ = 0;
  std::vector<std::uint32_t> to_trim_;
};

}  // namespace neve::kv
