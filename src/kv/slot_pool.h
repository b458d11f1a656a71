// Scale slots: fixed pieces of memory beside the code blocks, one per coded block.
//
// The lowest free slot is taken first; what is held is everything up to the highest slot in use.
// Thread rules: as BlockPool.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "base/address_space.h"
#include "kv/block_pool.h"
#include "neve/status.h"

namespace neve::kv {

class SlotPool {
 public:
  static Result<SlotPool> create(std::uint64_t slot_bytes, std::uint64_t most_slots, Backing backing) {
    SlotPool pool;
    pool.slot_bytes_ = slot_bytes;
    pool.most_slots_ = most_slots;
    if (backing == Backing::kMemory) {
      Result<AddressSpace> space = AddressSpace::reserve(slot_bytes * most_slots);
      if (!space.ok()) return space.status();
      pool.space_ = std::move(space).value();
    }
    return pool;
  }

  // Errors: kExhausted when all reserved slots are in use.
  Result<std::uint32_t> allocate() {
    if (!free_.empty()) {
      const std::uint32_t slot = free_.top();
      free_.pop();
      used_[slot] = true;
      return slot;
    }
    if (used_.size() >= most_slots_) return Status(Code::kExhausted, "scale slots: all reserved slots are in use");
    used_.push_back(true);
    return static_cast<std::uint32_t>(used_.size() - 1);
  }

  void free(std::uint32_t slot) {
    used_[slot] = false;
    free_.push(slot);
    if (slot + 1 != used_.size()) return;
    while (!used_.empty() && !used_.back()) used_.pop_back();
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> left;
    for (; !free_.empty() && free_.top() < used_.size(); free_.pop()) left.push(free_.top());
    free_ = std::move(left);
  }

  std::uint8_t* data(std::uint32_t slot) const { return space_.data() + slot * slot_bytes_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  std::uint64_t held_bytes() const { return used_.size() * slot_bytes_; }
  std::uint64_t used() const { return used_.size() - free_.size(); }
  // Bytes held if `more` slots were taken.
  std::uint64_t held_with(std::uint64_t more) const {
    const std::uint64_t fresh = more > free_.size() ? more - free_.size() : 0;
    return (used_.size() + fresh) * slot_bytes_;
  }
  void trim() const { space_.release(held_bytes(), space_.size() - held_bytes()); }

 private:
  AddressSpace space_;
  std::uint64_t slot_bytes_ = 0, most_slots_ = 0;
  std::vector<bool> used_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_;
};

}  // namespace neve::kv
