// One sequence of a cache: its tokens' positions, its sinks, its columns of pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/query_statistics.h"
#include "kv/storage.h"

namespace neve::kv {

// One page of every stored head: tokens [first, first + tokens).
struct Column {
  std::int64_t first = 0;
  int tokens = 0;
  bool closed = false;        // takes no more tokens, though it may hold fewer than a page
  bool ready = false;         // enough tokens came after it: it may be coded
  std::vector<PageId> pages;  // [stored heads]; kNoPage where a sliding window left it behind

  int room() const { return closed ? 0 : kPageTokens - tokens; }
  std::int64_t end() const { return first + tokens; }
};

// The first tokens at 16 bit, of all stored layers. Shared by forks once full.
struct Sinks {
  // Per stored layer: keys [kv_heads][sinks][key_dim], then values [kv_heads][sinks][value_dim], f16.
  std::vector<std::vector<std::uint16_t>> layers;
};

// A block that will move to a narrower level; done one at a time over the steps of a column.
struct Move {
  PageId page = kNoPage;
  Kind kind = kKey;
  std::uint8_t level = 0;
};

// Moves spread over the tokens (begin, end]: when the sequence has n tokens, the share (n - begin)/(end - begin) is done.
struct PendingMoves {
  std::vector<Move> moves;
  std::size_t done = 0;
  std::int64_t begin = 0, end = 0;

  // How many moves are due once the sequence has n tokens.
  std::size_t due(std::int64_t n) const {
    if (n >= end) return moves.size();
    if (n <= begin) return 0;
    return moves.size() * static_cast<std::size_t>(n - begin) / static_cast<std::size_t>(end - begin);
  }
};

struct Sequence {
  std::uint32_t id = 0;
  bool alive = false;
  std::int64_t committed = 0;
  int step_tokens = 0;                  // of the step that was begun
  std::size_t step_columns = 0;         // columns made for it
  std::vector<std::int32_t> positions;  // of committed and step tokens
  std::shared_ptr<Sinks> sinks;
  std::vector<Column> columns;
  std::vector<PendingMoves> pending;
  bool next_column_planned = false;  // its next column is counted on, whether that takes moves or not
  std::shared_ptr<MapSlot> maps;     // graded key layouts; null where keys are not graded
  QueryStatistics statistics;        // for the maps, until they are known

  const KeyMaps* known_maps() const { return maps != nullptr && maps->known ? &maps->maps : nullptr; }
};

}  // namespace neve::kv
