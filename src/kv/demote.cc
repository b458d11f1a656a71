// Making room: which blocks become narrower, and when.
#include <algorithm>
#include <string>

#include "kv/cache_impl.h"

namespace neve {

using kv::Change;
using kv::Choice;
using kv::Column;
using kv::Kind;
using kv::kKinds;
using kv::Move;
using kv::Page;
using kv::PageId;
using kv::Sequence;
using kv::Stand;

Status KvCache::Impl::make_room(const Change& need, std::int64_t columns) {
  if (by_layer()) return columns > 0 ? demote_layers(columns) : ok_status();
  const auto fits = [&] { return options.budget_bytes == 0 || storage.held_with(need) <= options.budget_bytes; };
  if (fits()) return ok_status();
  if (!by_page()) return over_budget(need);
  // What sequences planned for later and frees memory is done now.
  NEVE_RETURN_IF_ERROR(finish_ready_moves());
  if (fits()) return ok_status();
  std::vector<Move> moves;
  if (!plan_moves(need, nullptr, &moves)) {
    // Codes prepared for a sequence that stands still take memory and keep their blocks from everybody else.
    for (const auto& s : sequences) forget_moves(*s);
    if (!plan_moves(need, nullptr, &moves)) return over_budget(need);
  }
  for (const Move& move : moves) NEVE_RETURN_IF_ERROR(make_move(move));
  return ok_status();
}

void KvCache::Impl::plan_next_column(Sequence& s) {
  s.next_column_planned = false;
  if (!by_page() || !spread()) return;
  Change need = planned_change();
  count_columns(1, &need);
  kv::PendingMoves pending;
  if (!plan_moves(need, &s, &pending.moves)) return;
  s.next_column_planned = true;
  if (pending.moves.empty()) return;
  // Moves that free memory at once come before those that only prepare codes beside their 16-bit blocks.
  std::stable_partition(pending.moves.begin(), pending.moves.end(),
                        [&](const Move& move) { return storage.page(move.page).may_be_coded(); });
  pending.begin = s.columns.back().first;
  pending.end = pending.begin + kv::kPageTokens;
  s.pending.push_back(std::move(pending));
}

Change KvCache::Impl::planned_change() const {
  Change change = storage.no_change();
  for (const auto& s : sequences) {
    if (!s->alive) continue;
    if (s->next_column_planned) count_columns(1, &change);
    for (const kv::PendingMoves& pending : s->pending) {
      for (const Move& move : pending.moves) {
        const Page& page = storage.page(move.page);
        if (page.owners == 0 || page.now[move.kind].level >= move.level) continue;
        // Prepared codes are held already; what is still to come is that the wider block goes.
        const bool prepared = page.next[move.kind].block != kv::kNoBlock;
        storage.count_move(shape.stored[page.stored], move.kind, page.now[move.kind].level, prepared ? -1 : move.level,
                           &change);
      }
    }
  }
  return change;
}

Status KvCache::Impl::finish_ready_moves() {
  for (const auto& s : sequences) {
    for (const kv::PendingMoves& pending : s->pending) {
      for (std::size_t i = pending.done; i < pending.moves.size(); ++i) {
        if (storage.page(pending.moves[i].page).may_be_coded()) NEVE_RETURN_IF_ERROR(make_move(pending.moves[i]));
      }
    }
  }
  return ok_status();
}

bool KvCache::Impl::plan_moves(const Change& need, const Sequence* future, std::vector<Move>* moves) {
  Change change = need;
  std::vector<Choice> taken;
  const auto valid = [&](const Choice& c) {
    const Page& page = storage.page(c.page);
    return page.owners > 0 && page.planned[c.kind] == c.level;
  };
  const auto eligible = [&](const Choice& c) {
    const Page& page = storage.page(c.page);
    if (page.may_be_coded()) return true;
    // Ready by the time the next column of `future` starts, and for nobody else to wait for.
    return future != nullptr && page.owners == page.ready + 1 && page.sequence == future->id && page.tokens > 0 &&
           page.first_token + page.tokens + window() <= future->columns.back().first + kv::kPageTokens;
  };
  while (storage.held_with(change) > options.budget_bytes) {
    Choice choice;
    if (!queue.pop(valid, eligible, &choice)) {
      for (auto c = taken.rbegin(); c != taken.rend(); ++c) {
        storage.page(c->page).planned[c->kind] = static_cast<std::uint8_t>(c->level);
        queue.put_back(*c);
      }
      return false;
    }
    Page& page = storage.page(choice.page);
    page.planned[choice.kind] = static_cast<std::uint8_t>(choice.level + 1);
    storage.count_move(shape.stored[page.stored], choice.kind, choice.level, choice.level + 1, &change);
    if (choice.level + 1 < shape.lowest()) queue.push(choice.page, choice.kind, choice.level + 1);
    taken.push_back(choice);
  }
  // A block chosen more than once moves once, straight to its last level.
  for (const Choice& c : taken) {
    if (storage.page(c.page).planned[c.kind] == c.level + 1) {
      moves->push_back({c.page, c.kind, static_cast<std::uint8_t>(c.level + 1)});
    }
  }
  return true;
}

Status KvCache::Impl::demote_layers(std::int64_t columns) {
  const auto column_bytes = [&](const kv::StoredLayer& layer) {
    std::uint64_t bytes = 0;
    for (const Kind kind : kKinds) bytes += shape.block_bytes(layer, kind, 0);
    return bytes * static_cast<std::uint64_t>(layer.kv_heads * columns);
  };
  // First whether it can work at all: every ready block of the layer at the last level.
  std::vector<std::uint64_t> least(shape.stored.size(), 0);
  for (std::size_t id = 0; id < storage.page_limit(); ++id) {
    const Page& page = storage.page(static_cast<PageId>(id));
    if (page.owners == 0) continue;
    for (const Kind kind : kKinds) {
      const int level = page.may_be_coded() ? shape.lowest() : page.now[kind].level;
      least[page.stored] += shape.block_bytes(shape.stored[page.stored], kind, level);
    }
  }
  for (std::size_t i = 0; i < shape.stored.size(); ++i) {
    const std::uint64_t needed = least[i] + column_bytes(shape.stored[i]);
    if (needed > layer_budget[i]) {
      return Status(Code::kBudget, "layer " + std::to_string(shape.stored[i].layer) +
                                       ": the next tokens need at least " + std::to_string(needed) +
                                       " bytes, its budget is " + std::to_string(layer_budget[i]));
    }
  }
  for (std::size_t i = 0; i < shape.stored.size(); ++i) {
    const std::uint64_t more = column_bytes(shape.stored[i]);
    while (storage.layer_bytes(static_cast<int>(i)) + more > layer_budget[i] && layer_level[i] < shape.lowest()) {
      const int level = ++layer_level[i];
      for (std::size_t id = 0; id < storage.page_limit(); ++id) {
        const Page& page = storage.page(static_cast<PageId>(id));
        if (page.stored != i || !page.may_be_coded()) continue;
        for (const Kind kind : kKinds) NEVE_RETURN_IF_ERROR(move_block(static_cast<PageId>(id), kind, level));
      }
    }
  }
  return ok_status();
}

Status KvCache::Impl::advance_moves(Sequence& s) {
  for (kv::PendingMoves& pending : s.pending) {
    for (const std::size_t due = pending.due(s.committed); pending.done < due; ++pending.done) {
      NEVE_RETURN_IF_ERROR(make_move(pending.moves[pending.done]));
    }
  }
  std::erase_if(s.pending, [](const kv::PendingMoves& pending) { return pending.done == pending.moves.size(); });
  return ok_status();
}

void KvCache::Impl::forget_moves(Sequence& s) {
  for (const kv::PendingMoves& pending : s.pending) {
    for (const Move& move : pending.moves) {
      Page& page = storage.page(move.page);
      if (page.owners == 0 || page.now[move.kind].level == move.level) continue;
      storage.free(page, move.kind, &page.next[move.kind]);
      page.planned[move.kind] = page.now[move.kind].level;
      if (by_page()) queue.push(move.page, move.kind, page.now[move.kind].level);
    }
  }
  s.pending.clear();
  s.next_column_planned = false;
}

Status KvCache::Impl::make_move(const Move& move) {
  const Page& page = storage.page(move.page);
  if (page.owners == 0 || page.now[move.kind].level >= move.level) return ok_status();  // freed or overtaken meanwhile
  return page.may_be_coded() ? move_block(move.page, move.kind, move.level)
                             : prepare_block(move.page, move.kind, move.level);
}

Status KvCache::Impl::move_block(PageId id, Kind kind, int level) {
  Page& page = storage.page(id);
  if (page.now[kind].level >= level) return ok_status();
  storage.free(page, kind, &page.next[kind]);
  Result<Stand> stand = storage.allocate(page, kind, level);
  if (!stand.ok()) return stand.status();
  const Status filled = coder.fill(storage, page, kind, *stand);
  if (!filled.ok()) {
    storage.free(page, kind, &*stand);
    return filled;
  }
  storage.replace(id, kind, *stand);
  page.planned[kind] = std::max(page.planned[kind], static_cast<std::uint8_t>(level));
  ++demotions;
  return ok_status();
}

Status KvCache::Impl::prepare_block(PageId id, Kind kind, int level) {
  Page& page = storage.page(id);
  Change codes = storage.no_change();
  storage.count_move(shape.stored[page.stored], kind, -1, level, &codes);
  if (options.budget_bytes > 0 && storage.held_with(codes) > options.budget_bytes) {
    // Others took the memory meanwhile: the block stays as it is and is asked again when room is made.
    page.planned[kind] = page.now[kind].level;
    if (by_page()) queue.push(id, kind, page.now[kind].level);
    return ok_status();
  }
  Result<Stand> stand = storage.allocate(page, kind, level);
  if (!stand.ok()) return stand.status();
  const Status filled = coder.fill(storage, page, kind, *stand);
  if (!filled.ok()) {
    storage.free(page, kind, &*stand);
    return filled;
  }
  storage.free(page, kind, &page.next[kind]);
  page.next[kind] = *stand;
  note_peak();
  return ok_status();
}

void KvCache::Impl::switch_block(PageId id, Kind kind) {
  const Stand prepared = std::exchange(storage.page(id).next[kind], Stand());
  storage.replace(id, kind, prepared);
  ++demotions;
}

}  // namespace neve
