// Which block becomes narrower first when memory is short, page by page.
//
// Without a profile: the level whose next step costs least damage first (16 -> 8 before 8 -> 4 before 4 -> 2: each
// step costs about a hundred times the one before, docs/graded-keys.md), values before keys, oldest first.
// Thread rules: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "kv/storage.h"

namespace neve::kv {

struct Choice {
  PageId page = kNoPage;
  Kind kind = kKey;
  int level = 0;  // from here one level down
};

class DemotionQueue {
 public:
  // lowest: the level that nothing falls below.
  explicit DemotionQueue(int lowest) : queues_(static_cast<std::size_t>(lowest) * 2) {}

  // A block that now stands (or is planned to stand) on `level` may be asked to go further.
  void push(PageId page, Kind kind, int level);

  // Takes the next block for which `valid` (still as it was pushed; others are dropped) and `eligible` hold.
  // Returns: false if there is none.
  bool pop(const std::function<bool(const Choice&)>& valid, const std::function<bool(const Choice&)>& eligible,
           Choice* choice);

  // Puts a choice back at the front (undo).
  void put_back(const Choice& choice);

  // All blocks in it, in no order: for the question how much could become narrower.
  void for_each(const std::function<void(const Choice&)>& visit) const;

  std::size_t metadata_bytes() const;

 private:
  struct Entry {
    PageId page;
    Kind kind;
  };
  std::size_t index(Kind kind, int level) const {
    return static_cast<std::size_t>(level) * 2 + (kind == kValue ? 0 : 1);
  }

  std::vector<std::deque<Entry>> queues_;  // in the order in which they are emptied
};

}  // namespace neve::kv
