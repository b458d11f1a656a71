// Scale slots: fixed pieces of memory beside the code blocks, one per coded block.
//
// Compact: when a slot becomes free, the last one moves into its place, so what is held is what is used, in whatever
// order slots come and go. A handle, not an address, names a slot.
// Thread rules: as BlockPool.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
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
    if (owner_.size() >= most_slots_) return Status(Code::kExhausted, "scale slots: all reserved slots are in use");
    auto handle = static_cast<std::uint32_t>(place_.size());
    if (free_handles_.empty()) {
      place_.emplace_back();
    } else {
      handle = free_handles_.back();
      free_handles_.pop_back();
    }
    place_[handle] = static_cast<std::uint32_t>(owner_.size());
    owner_.push_back(handle);
    return handle;
  }

  void free(std::uint32_t handle) {
    const std::uint32_t last = owner_.back(), hole = place_[handle];
    if (last != handle) {
      if (space_.data() != nullptr) std::memcpy(data(handle), data(last), slot_bytes_);
      place_[last] = hole;
      owner_[hole] = last;
    }
    owner_.pop_back();
    free_handles_.push_back(handle);
  }

  std::uint8_t* data(std::uint32_t handle) const { return space_.data() + place_[handle] * slot_bytes_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  std::uint64_t used() const { return owner_.size(); }
  std::uint64_t held_bytes() const { return owner_.size() * slot_bytes_; }
  // Bytes held with `more` slots more, or less.
  std::uint64_t held_with(std::int64_t more) const {
    return (owner_.size() + static_cast<std::uint64_t>(more)) * slot_bytes_;
  }
  std::uint64_t metadata_bytes() const {
    return (place_.capacity() + owner_.capacity() + free_handles_.capacity()) * sizeof(std::uint32_t);
  }
  void trim() {
    space_.release(held_bytes(), space_.size() - held_bytes());
    space_.gather(held_bytes());
  }

 private:
  AddressSpace space_;
  std::uint64_t slot_bytes_ = 0, most_slots_ = 0;
  std::vector<std::uint32_t> place_;  // by handle
  std::vector<std::uint32_t> owner_;  // by place: the handle
  std::vector<std::uint32_t> free_handles_;
};

}  // namespace neve::kv
