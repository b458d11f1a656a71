#include "kv/storage.h"

#include <utility>

namespace neve::kv {

Result<Storage> Storage::create(const Shape& shape, std::uint64_t most_pages, Backing backing) {
  Storage storage(shape);
  storage.backing_ = backing;
  // Every stored block could be in every pool of its layer at once (prepared beside the current one).
  std::vector<std::uint64_t> blocks(shape.pools.size(), 0), slots(shape.slot_bytes.size(), 0);
  for (const StoredLayer& layer : shape.stored) {
    for (const Kind kind : kKinds) {
      std::vector<bool> counted(shape.pools.size(), false);
      for (const Placement& at : layer.placement[kind]) {
        const auto pool = static_cast<std::size_t>(at.pool);
        if (!counted[pool]) blocks[pool] += static_cast<std::uint64_t>(layer.kv_heads) * most_pages;
        counted[pool] = true;
      }
      if (!slots.empty()) {
        slots[static_cast<std::size_t>(layer.slot_pool[kind])] +=
            2 * static_cast<std::uint64_t>(layer.kv_heads) * most_pages;
      }
    }
  }
  for (std::size_t i = 0; i < shape.pools.size(); ++i) {
    Result<BlockPool> pool = BlockPool::create(shape.pools[i].top_bytes, shape.pools[i].orders, blocks[i] + 2, backing);
    if (!pool.ok()) return pool.status();
    storage.pools_.push_back(std::move(pool).value());
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Result<SlotPool> pool = SlotPool::create(shape.slot_bytes[i], slots[i], backing);
    if (!pool.ok()) return pool.status();
    storage.slots_.push_back(std::move(pool).value());
  }
  storage.layer_bytes_.assign(shape.stored.size(), 0);
  storage.used_bytes_.assign(shape.levels.size(), {0, 0});
  return storage;
}

void Storage::count(const Page& page, Kind kind, int level, std::int64_t sign) {
  const std::uint64_t bytes = shape_->block_bytes(layer_of(page), kind, level);
  const std::uint64_t change = sign > 0 ? bytes : ~bytes + 1;
  layer_bytes_[page.stored] += change;
  used_bytes_[static_cast<std::size_t>(level)][kind] += change;
}

Result<Stand> Storage::allocate(const Page& page, Kind kind, int level) {
  const Placement& at = layer_of(page).placement[kind][static_cast<std::size_t>(level)];
  BlockPool& pool = pools_[static_cast<std::size_t>(at.pool)];
  Stand stand;
  stand.level = static_cast<std::uint8_t>(level);
  Result<BlockHandle> block = pool.allocate(at.order);
  if (!block.ok()) return block.status();
  stand.block = *block;
  if (level > 0) {
    Result<std::uint32_t> slot = slots_[slot_pool_of(page, kind)].allocate();
    if (!slot.ok()) {
      pool.free(stand.block);
      return slot.status();
    }
    stand.slot = *slot;
  }
  count(page, kind, level, 1);
  return stand;
}

void Storage::free(const Page& page, Kind kind, Stand* stand) {
  if (stand->block == kNoBlock) return;
  const Placement& at = layer_of(page).placement[kind][stand->level];
  pools_[static_cast<std::size_t>(at.pool)].free(stand->block);
  if (stand->slot != kNoSlot) slots_[slot_pool_of(page, kind)].free(stand->slot);
  count(page, kind, stand->level, -1);
  *stand = Stand();
}

void Storage::replace(PageId id, Kind kind, Stand stand) {
  Page& p = pages_[id];
  Stand old = std::exchange(p.now[kind], stand);
  free(p, kind, &old);
}

Result<PageId> Storage::add_page(const Page& wanted) {
  Page page = wanted;
  for (const Kind kind : kKinds) {
    Result<Stand> stand = allocate(page, kind, 0);
    if (!stand.ok()) {
      for (const Kind made : kKinds) free(page, made, &page.now[made]);
      return stand.status();
    }
    page.now[kind] = *stand;
  }
  if (free_pages_.empty()) {
    pages_.push_back(page);
    return static_cast<PageId>(pages_.size() - 1);
  }
  const PageId id = free_pages_.back();
  free_pages_.pop_back();
  pages_[id] = page;
  return id;
}

void Storage::free_page(PageId id) {
  Page& page = pages_[id];
  for (const Kind kind : kKinds) {
    free(page, kind, &page.now[kind]);
    free(page, kind, &page.next[kind]);
  }
  page.owners = 0;
  free_pages_.push_back(id);
}

std::uint64_t Storage::held_bytes() const { return held_with(no_change()); }

Change Storage::no_change() const {
  return {std::vector<std::int64_t>(pools_.size(), 0), std::vector<std::int64_t>(slots_.size(), 0), 0};
}

std::uint64_t Storage::held_with(const Change& change) const {
  std::uint64_t bytes = static_cast<std::uint64_t>(other_bytes_ + change.other_bytes);
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    bytes += shape_->pools[i].held_bytes(pools_[i].used_units() + static_cast<std::uint64_t>(change.units[i]));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) bytes += slots_[i].held_with(change.slots[i]);
  return bytes;
}

void Storage::count_move(const StoredLayer& layer, Kind kind, int from, int to, Change* change) const {
  const auto add = [&](int level, std::int64_t sign) {
    if (level < 0) return;
    const Placement& at = layer.placement[kind][static_cast<std::size_t>(level)];
    const auto pool = static_cast<std::size_t>(at.pool);
    change->units[pool] += sign * static_cast<std::int64_t>(pools_[pool].units(at.order));
    if (level > 0) change->slots[static_cast<std::size_t>(layer.slot_pool[kind])] += sign;
  };
  add(from, -1);
  add(to, 1);
}

std::uint64_t Storage::metadata_bytes() const {
  std::uint64_t bytes = pages_.capacity() * sizeof(Page) + free_pages_.capacity() * sizeof(PageId);
  for (const BlockPool& pool : pools_) bytes += pool.metadata_bytes();
  for (const SlotPool& pool : slots_) bytes += pool.metadata_bytes();
  return bytes;
}

void Storage::trim() {
  for (BlockPool& pool : pools_) pool.trim();
  for (SlotPool& pool : slots_) pool.trim();
}

}  // namespace neve::kv
