// For tests: every byte that a sequence holds, in an order of its own.
#pragma once

#include <cstdint>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "kv/cache_impl.h"

namespace neve::kv {

// One block as it stands: its level, its codes and scales. Of an open page only the rows that are there.
struct HeldBlock {
  int column = 0, head = 0, kind = 0, level = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;

  bool operator==(const HeldBlock&) const = default;
};

// For failure messages: not the bytes.
inline void PrintTo(const HeldBlock& block, std::ostream* out) {
  *out << (block.kind == kKey ? "keys" : "values") << " from token " << block.column << ", head " << block.head
       << ", level " << block.level;
}

// Calls use(column, stored layer, head of all stored heads, page id, page) for every page of a sequence.
template <typename Use>
void for_each_page(KvCache::Impl& impl, int sequence, Use use) {
  const Sequence& s = *impl.find(sequence);
  for (std::size_t i = 0; i < s.columns.size(); ++i) {
    for (std::size_t head = 0; head < s.columns[i].pages.size(); ++head) {
      const PageId id = s.columns[i].pages[head];
      if (id == kNoPage) continue;
      Page& page = impl.storage.page(id);
      use(s.columns[i], impl.shape.stored[page.stored], static_cast<int>(head), id, page);
    }
  }
}

inline std::vector<HeldBlock> held_blocks(KvCache::Impl& impl, int sequence) {
  std::vector<HeldBlock> blocks;
  for_each_page(impl, sequence, [&](const Column& column, const StoredLayer& layer, int head, PageId, Page& page) {
    for (const Kind kind : {kKey, kValue}) {
      const Stand& stand = page.now[kind];
      HeldBlock block;
      block.column = static_cast<int>(column.first);
      block.head = head;
      block.kind = kind;
      block.level = stand.level;
      std::uint64_t bytes = impl.shape.block_bytes(layer, kind, stand.level);
      if (stand.level == 0) {
        bytes = static_cast<std::uint64_t>(column.tokens) * static_cast<std::uint64_t>(layer.dim[kind]) * 2;
      } else {
        const std::uint64_t slot_bytes = impl.shape.slot_bytes[static_cast<std::size_t>(layer.slot_pool[kind])];
        bytes -= slot_bytes;
        const auto* scales = reinterpret_cast<const std::uint8_t*>(impl.storage.scales(page, kind, stand));
        block.scales.assign(scales, scales + slot_bytes);
      }
      const std::uint8_t* codes = impl.storage.codes(page, kind, stand);
      block.codes.assign(codes, codes + bytes);
      blocks.push_back(std::move(block));
    }
  });
  return blocks;
}

// Empty if both are the same, else the first difference.
inline std::string difference(const std::vector<HeldBlock>& a, const std::vector<HeldBlock>& b) {
  if (a.size() != b.size()) return std::to_string(a.size()) + " blocks against " + std::to_string(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    std::ostringstream text;
    PrintTo(a[i], &text);
    text << " against ";
    PrintTo(b[i], &text);
    text << (a[i].codes == b[i].codes ? "; same codes" : "; other codes");
    return text.str();
  }
  return "";
}

inline int coded_blocks(const std::vector<HeldBlock>& blocks) {
  int coded = 0;
  for (const HeldBlock& block : blocks) coded += block.level > 0 ? 1 : 0;
  return coded;
}

}  // namespace neve::kv
