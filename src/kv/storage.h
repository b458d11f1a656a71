// All blocks of a cache: pages with their key and value blocks, the memory they stand in, and the account of it.
//
// A page belongs to one KV head of one stored layer. Each of its blocks stands on its own level; the codes of a level
// can be prepared beside it and switched to later. Several sequences may own a page (fork): bytes count once.
// Thread rules: reads from any thread while nobody changes anything; changes by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/shape.h"
#include "kv/slot_pool.h"

namespace neve::kv {

using PageId = std::uint32_t;
inline constexpr PageId kNoPage = 0xffffffffu;
inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

struct MapSlot;  // sequence.h

// A block on a level: its codes (or 16-bit numbers) and, if coded, its scales.
struct Stand {
  BlockHandle block = kNoBlock;
  std::uint32_t slot = kNoSlot;
  std::uint8_t level = 0;
};

struct Page {
  std::array<Stand, 2> now;                      // by kind; what readers see
  std::array<Stand, 2> next;                     // prepared; block == kNoBlock if none
  std::array<std::uint8_t, 2> planned = {0, 0};  // level that a plan has chosen, >= now.level
  std::uint16_t stored = 0;                      // stored layer
  std::uint16_t head = 0;
  std::uint16_t owners = 0;    // sequences
  std::uint16_t ready = 0;     // owners for which it may be coded
  std::uint32_t sequence = 0;  // the owner, while there is one
  std::uint8_t tokens = 0;     // once the page takes no more
  std::int64_t first_token = 0;
  const MapSlot* maps = nullptr;  // graded layouts of its owners, who keep it alive

  bool may_be_coded() const { return owners > 0 && ready == owners; }
};

// A change of what is held, before it happens.
struct Change {
  std::vector<std::int64_t> units;  // by pool
  std::vector<std::int64_t> slots;  // by slot pool
  std::int64_t other_bytes = 0;
};

class Storage {
 public:
  // most_pages: address space is reserved for that many pages of every stored head.
  static Result<Storage> create(const Shape& shape, std::uint64_t most_pages, Backing backing);
  // The shape at its final address, before anything else is called.
  void attach(const Shape& shape) { shape_ = &shape; }

  // Keeps `page` (layer, head, owners) with both blocks at 16 bit. Errors: kExhausted.
  Result<PageId> add_page(const Page& page);
  void free_page(PageId id);

  // A place on `level` for a block of this page; the caller fills it. Errors: kExhausted.
  Result<Stand> allocate(const Page& page, Kind kind, int level);
  void free(const Page& page, Kind kind, Stand* stand);
  // Frees what readers see now and puts `stand` there.
  void replace(PageId id, Kind kind, Stand stand);

  Page& page(PageId id) { return pages_[id]; }
  const Page& page(PageId id) const { return pages_[id]; }
  std::size_t page_limit() const { return pages_.size(); }

  std::uint8_t* codes(const Page& page, Kind kind, const Stand& stand) const {
    return pool_of(page, kind, stand.level).data(stand.block);
  }
  std::uint16_t* scales(const Page& page, Kind kind, const Stand& stand) const {
    return reinterpret_cast<std::uint16_t*>(slots_[slot_pool_of(page, kind)].data(stand.slot));
  }

  bool backed() const { return backing_ == Backing::kMemory; }

  // Blocks, slots, spare blocks, sinks: all that is held.
  std::uint64_t held_bytes() const;
  std::uint64_t held_with(const Change& change) const;
  Change no_change() const;
  // Adds to `change` a block of this kind that moves from one level to another; -1 = from or to nothing.
  void count_move(const StoredLayer& layer, Kind kind, int from, int to, Change* change) const;
  void add_other_bytes(std::int64_t bytes) { other_bytes_ += bytes; }  // sinks

  std::uint64_t layer_bytes(int stored) const { return layer_bytes_[static_cast<std::size_t>(stored)]; }
  // Bytes in use by level and kind; what is free inside held blocks is the rest.
  std::uint64_t used_bytes(int level, Kind kind) const { return used_bytes_[static_cast<std::size_t>(level)][kind]; }
  std::uint64_t other_bytes() const { return static_cast<std::uint64_t>(other_bytes_); }
  std::uint64_t metadata_bytes() const;
  void trim();

 private:
  explicit Storage(const Shape& shape) : shape_(&shape) {}
  const StoredLayer& layer_of(const Page& page) const { return shape_->stored[page.stored]; }
  const BlockPool& pool_of(const Page& page, Kind kind, int level) const {
    return pools_[static_cast<std::size_t>(layer_of(page).placement[kind][static_cast<std::size_t>(level)].pool)];
  }
  std::size_t slot_pool_of(const Page& page, Kind kind) const {
    return static_cast<std::size_t>(layer_of(page).slot_pool[kind]);
  }
  void count(const Page& page, Kind kind, int level, std::int64_t sign);

  const Shape* shape_;
  Backing backing_ = Backing::kMemory;
  std::vector<BlockPool> pools_;
  std::vector<SlotPool> slots_;
  std::vector<Page> pages_;
  std::vector<PageId> free_pages_;
  std::vector<std::uint64_t> layer_bytes_;
  std::vector<std::array<std::uint64_t, 2>> used_bytes_;
  std::int64_t other_bytes_ = 0;
};

}  // namespace neve::kv
