#include "kv/block_pool.h"

#include <cstring>
#include <functional>
#include <string>

namespace neve::kv {

Result<BlockPool> BlockPool::create(std::uint64_t top_bytes, int orders, std::uint64_t most_tops, Backing backing) {
  BlockPool pool;
  pool.top_bytes_ = top_bytes;
  pool.orders_ = orders;
  pool.unit_bytes_ = top_bytes >> (orders - 1);
  pool.most_tops_ = most_tops;
  pool.lone_free_.assign(static_cast<std::size_t>(orders), kNoUnit);
  if (most_tops * pool.units_per_top() >= kNoUnit) {
    return Status(Code::kExhausted, "block pool: wanted " + std::to_string(most_tops) + " blocks of " +
                                        std::to_string(top_bytes) + " bytes, got at most 2^32 units");
  }
  if (backing == Backing::kMemory) {
    Result<AddressSpace> space = AddressSpace::reserve(top_bytes * most_tops);
    if (!space.ok()) return space.status();
    pool.space_ = std::move(space).value();
  }
  return pool;
}

std::uint64_t BlockPool::tops_with(std::int64_t more_units) const {
  const std::uint64_t units = used_units_ + static_cast<std::uint64_t>(more_units);
  return (units + units_per_top() - 1) / units_per_top();
}

std::uint64_t BlockPool::metadata_bytes() const {
  return blocks_.capacity() * sizeof(Block) + owner_.capacity() * sizeof(BlockHandle) +
         free_handles_.capacity() * sizeof(BlockHandle);
}

std::uint32_t BlockPool::take(int order) {
  if (order == 0) {
    std::uint32_t top;
    if (free_tops_.empty()) {
      if (fresh_tops_ >= most_tops_) return kNoUnit;
      top = fresh_tops_++;
      owner_.resize(fresh_tops_ * units_per_top(), kNoBlock);
    } else {
      top = free_tops_.top();
      free_tops_.pop();
    }
    ++tops_;
    return static_cast<std::uint32_t>(top * units_per_top());
  }
  std::uint32_t& lone = lone_free_[static_cast<std::size_t>(order)];
  if (lone != kNoUnit) return std::exchange(lone, kNoUnit);
  const std::uint32_t parent = take(order - 1);
  if (parent == kNoUnit) return kNoUnit;
  lone = parent + static_cast<std::uint32_t>(units(order));
  return parent;
}

void BlockPool::give(std::uint32_t unit, int order) {
  if (order == 0) {
    const auto top = static_cast<std::uint32_t>(unit / units_per_top());
    free_tops_.push(top);
    to_trim_.push_back(top);
    --tops_;
    return;
  }
  std::uint32_t& lone = lone_free_[static_cast<std::size_t>(order)];
  if (lone == kNoUnit) {
    lone = unit;
    return;
  }
  const auto size = static_cast<std::uint32_t>(units(order));
  const std::uint32_t other = std::exchange(lone, kNoUnit);
  if (other != (unit ^ size)) move_region(unit ^ size, other, order);  // units of a top start at a multiple of its size
  give(unit & ~size, order - 1);
}

void BlockPool::move_region(std::uint32_t from, std::uint32_t to, int order) {
  const auto size = static_cast<std::uint32_t>(units(order));
  if (space_.data() != nullptr) {
    std::memcpy(space_.data() + to * unit_bytes_, space_.data() + from * unit_bytes_, size * unit_bytes_);
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    const BlockHandle handle = std::exchange(owner_[from + i], kNoBlock);
    owner_[to + i] = handle;
    if (handle != kNoBlock) blocks_[handle].unit = to + i;
  }
  for (std::uint32_t& lone : lone_free_) {  // a smaller free region inside moves along
    if (lone != kNoUnit && lone >= from && lone < from + size) lone = lone - from + to;
  }
}

Result<BlockHandle> BlockPool::allocate(int order) {
  const std::uint32_t unit = take(order);
  if (unit == kNoUnit) {
    return Status(Code::kExhausted, "block pool: wanted a block of " + std::to_string(bytes(order)) +
                                        " bytes, got none: all " + std::to_string(most_tops_) +
                                        " reserved blocks are in use");
  }
  BlockHandle handle;
  if (free_handles_.empty()) {
    handle = static_cast<BlockHandle>(blocks_.size());
    blocks_.emplace_back();
  } else {
    handle = free_handles_.back();
    free_handles_.pop_back();
  }
  blocks_[handle] = {unit, static_cast<std::uint32_t>(order)};
  owner_[unit] = handle;
  used_units_ += units(order);
  return handle;
}

void BlockPool::free(BlockHandle handle) {
  const Block block = blocks_[handle];
  owner_[block.unit] = kNoBlock;
  used_units_ -= units(static_cast<int>(block.order));
  free_handles_.push_back(handle);
  give(block.unit, static_cast<int>(block.order));
}

void BlockPool::trim() {
  // A top in the list may have been taken again since: only those still free are released. Free neighbours within the
  // reach of a memory page go with them, so that a page goes back as soon as all of it is free.
  constexpr std::uint64_t kReach = 65536;
  const std::uint64_t reach = (kReach + top_bytes_ - 1) / top_bytes_;
  std::vector<bool> is_free(fresh_tops_, false);
  auto tops = free_tops_;
  for (; !tops.empty(); tops.pop()) is_free[tops.top()] = true;
  for (const std::uint32_t top : to_trim_) {
    if (!is_free[top]) continue;
    std::uint64_t first = top, end = std::uint64_t{top} + 1;
    while (first > 0 && top - first < reach && is_free[first - 1]) --first;
    while (end < fresh_tops_ && end - top <= reach && is_free[end]) ++end;
    space_.release(first * top_bytes_, (end - first) * top_bytes_);
  }
  to_trim_.clear();
  space_.gather((free_tops_.empty() ? fresh_tops_ : free_tops_.top()) * top_bytes_);
}

}  // namespace neve::kv
