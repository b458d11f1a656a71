// begin_step, commit_step, abandon_step: memory for new tokens, and what happens at boundaries.
//
// A column is full when its last token is committed; it is ready (may be coded) `window` tokens later. State changes
// only there, and the moves between are a function of the sequence's length, so it does not matter how tokens are cut
// into steps.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "kv/cache_impl.h"

namespace neve {

using kv::Change;
using kv::Column;
using kv::Kind;
using kv::kKinds;
using kv::Page;
using kv::PageId;
using kv::Sequence;
using kv::StoredLayer;

std::int64_t KvCache::Impl::room(const Sequence& s) const {
  const std::int64_t next = s.committed + s.step_tokens;
  if (next < sinks()) return sinks() - next;
  if (s.columns.empty()) return 0;
  const Column& last = s.columns.back();
  return last.closed ? 0 : std::max<std::int64_t>(0, last.first + kv::kPageTokens - next);
}

std::int64_t KvCache::Impl::new_columns(const Sequence& s, std::int64_t tokens) const {
  const std::int64_t left = tokens - room(s);
  return left <= 0 ? 0 : (left + kv::kPageTokens - 1) / kv::kPageTokens;
}

void KvCache::Impl::count_columns(std::int64_t columns, Change* change) const {
  for (const StoredLayer& layer : shape.stored) {
    for (const Kind kind : kKinds) {
      for (std::int64_t i = 0; i < columns * layer.kv_heads; ++i) storage.count_move(layer, kind, -1, 0, change);
    }
  }
}

Status KvCache::Impl::over_budget(const Change& need) const {
  return Status(Code::kBudget, "cache: the next tokens need " + std::to_string(storage.held_with(need)) +
                                   " bytes, the budget is " + std::to_string(options.budget_bytes) +
                                   " and all that may be narrower is at its last rung");
}

Status KvCache::Impl::add_column(Sequence& s, std::int64_t first) {
  Column column;
  column.first = first;
  column.pages.reserve(static_cast<std::size_t>(shape.heads));
  Page page;
  page.owners = 1;
  page.sequence = s.id;
  page.first_token = first;
  page.maps = s.maps.get();
  for (std::size_t stored = 0; stored < shape.stored.size(); ++stored) {
    for (int head = 0; head < shape.stored[stored].kv_heads; ++head) {
      page.stored = static_cast<std::uint16_t>(stored);
      page.head = static_cast<std::uint16_t>(head);
      Result<PageId> id = storage.add_page(page);
      if (!id.ok()) {
        for (const PageId made : column.pages) storage.free_page(made);
        return id.status();
      }
      column.pages.push_back(*id);
    }
  }
  s.columns.push_back(std::move(column));
  return ok_status();
}

Status KvCache::begin_step(std::span<const StepPart> step) {
  Impl& impl = *impl_;
  if (!impl.parts.empty()) return Status(Code::kInvalidArgument, "begin_step: the step before was not committed");
  std::vector<Sequence*> found;
  Change need = impl.storage.no_change();
  std::int64_t columns = 0;
  for (const StepPart& part : step) {
    Sequence* s = nullptr;
    NEVE_RETURN_IF_ERROR(impl.need_sequence(part.sequence, &s));
    if (part.tokens < 1) {
      return Status(Code::kInvalidArgument, "begin_step: sequence " + std::to_string(part.sequence) +
                                                ": wanted at least one token, got " + std::to_string(part.tokens));
    }
    if (std::find(found.begin(), found.end(), s) != found.end()) {
      return Status(Code::kInvalidArgument, "begin_step: sequence " + std::to_string(part.sequence) + " stands twice");
    }
    if (s->committed + part.tokens > impl.options.max_tokens) {
      return Status(Code::kInvalidArgument, "begin_step: sequence " + std::to_string(part.sequence) +
                                                ": wanted at most " + std::to_string(impl.options.max_tokens) +
                                                " tokens (max_tokens), got " +
                                                std::to_string(s->committed + part.tokens));
    }
    found.push_back(s);
    columns += impl.new_columns(*s, part.tokens);
    if (s->committed == 0 && s->sinks == nullptr) {
      need.other_bytes += static_cast<std::int64_t>(impl.shape.sink_bytes(impl.options.spec.sinks));
    }
  }
  impl.count_columns(columns, &need);
  NEVE_RETURN_IF_ERROR(impl.make_room(need, columns));

  // Nothing below fails but for address space, which was reserved for max_tokens.
  std::int64_t row = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    Sequence& s = *found[i];
    const int tokens = step[i].tokens;
    if (s.sinks == nullptr) {
      s.sinks = std::make_shared<kv::Sinks>();
      for (const StoredLayer& layer : impl.shape.stored) {
        const std::uint64_t bytes = layer.sink_bytes_per_token * static_cast<std::uint64_t>(impl.sinks());
        s.sinks->layers.emplace_back(impl.storage.backed() ? bytes / 2 : 0);
      }
      impl.storage.add_other_bytes(static_cast<std::int64_t>(impl.shape.sink_bytes(impl.options.spec.sinks)));
    }
    const std::int64_t made = impl.new_columns(s, tokens);
    std::int64_t first = s.committed + std::min<std::int64_t>(impl.room(s), tokens);
    s.step_tokens = tokens;
    s.step_columns = 0;
    impl.parts.push_back({&s, row, tokens, tokens > kv::kDecodeTokens, 0, 0});
    for (std::int64_t c = 0; c < made; ++c, first += kv::kPageTokens) {
      const Status added = impl.add_column(s, first);
      if (!added.ok()) {
        abandon_step();
        return added;
      }
      ++s.step_columns;
    }
    for (int t = 0; t < tokens; ++t) {
      const std::int32_t last = s.positions.empty() ? -1 : s.positions.back();
      s.positions.push_back(step[i].positions != nullptr ? step[i].positions[t] : last + 1);
    }
    row += tokens;
  }
  impl.note_peak();
  for (Sequence* s : found) {
    if (s->step_columns > 0) impl.plan_next_column(*s);
  }
  if (columns > 0) impl.storage.trim();
  impl.start_attention();
  return ok_status();
}

void KvCache::abandon_step() {
  Impl& impl = *impl_;
  for (const kv::ActivePart& part : impl.parts) {
    Sequence& s = *part.sequence;
    if (s.step_columns > 0) impl.forget_moves(s);
    (void)impl.release_columns(s, s.columns.size() - s.step_columns);  // new columns: nothing waits for them
    s.positions.resize(static_cast<std::size_t>(s.committed));
    s.step_tokens = 0;
    s.step_columns = 0;
  }
  impl.parts.clear();
}

Status KvCache::commit_step() {
  Impl& impl = *impl_;
  Status first_error = impl.finite_step();
  if (!first_error.ok()) {
    abandon_step();
    return first_error;
  }
  for (const kv::ActivePart& part : impl.parts) {
    Sequence& s = *part.sequence;
    const int tokens = std::exchange(s.step_tokens, 0);
    s.step_columns = 0;
    const Status status = impl.advance(s, tokens);
    if (!status.ok() && first_error.ok()) first_error = status;
  }
  impl.parts.clear();
  return first_error;
}

std::int64_t KvCache::Impl::next_event(const Sequence& s) const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  const auto consider = [&](std::int64_t at) {
    if (at > s.committed) next = std::min(next, at);
  };
  if (s.maps != nullptr && !s.maps->known) consider(kv::QueryStatistics::map_tokens(options.spec));
  if (s.columns.empty()) consider(sinks() + kv::kPageTokens);
  for (const Column& column : s.columns) {
    const std::int64_t end = column.closed ? column.end() : column.first + kv::kPageTokens;
    consider(end);
    if (!column.ready) consider(end + window());
  }
  for (const StoredLayer& layer : shape.stored) {
    if (layer.sliding_window > 0) consider(leaves_at(s, layer));
  }
  return next;
}

Status KvCache::Impl::advance(Sequence& s, std::int64_t tokens) {
  const std::int64_t target = s.committed + tokens;
  while (s.committed < target) {
    s.committed = std::min(target, next_event(s));
    // Where moves and readiness fall on the same token, the moves come first: what was prepared is then switched to.
    NEVE_RETURN_IF_ERROR(advance_moves(s));
    for (Column& column : s.columns) {
      if (!column.closed && column.tokens < kv::kPageTokens && s.committed > column.first) {
        column.tokens = static_cast<int>(std::min<std::int64_t>(kv::kPageTokens, s.committed - column.first));
        if (column.tokens == kv::kPageTokens) NEVE_RETURN_IF_ERROR(column_full(s, column));
      }
    }
    learn_maps(s);
    for (Column& column : s.columns) {
      const bool full = column.closed || column.tokens == kv::kPageTokens;
      if (full && !column.ready && s.committed >= column.end() + window()) NEVE_RETURN_IF_ERROR(column_ready(column));
    }
    free_left_behind(s);
    note_peak();
  }
  return ok_status();
}

Status KvCache::Impl::column_full(Sequence& s, Column& column) {
  kv::PendingMoves moves;
  for (const PageId id : column.pages) {
    if (id == kv::kNoPage) continue;
    Page& page = storage.page(id);
    page.tokens = static_cast<std::uint8_t>(column.tokens);
    for (const Kind kind : kKinds) {
      if (by_page()) queue.push(id, kind, 0);
      if (fixed()) moves.moves.push_back({id, kind, 1});
    }
  }
  // A graded map is not known while the first column waits; that column is coded at its boundary.
  const bool coded_alike = s.maps == nullptr || s.maps->known;
  if (!fixed() || !spread() || window() == 0 || !coded_alike) return ok_status();
  moves.end = column.end() + window();
  moves.begin = moves.end - std::min<std::int64_t>(window(), kv::kPageTokens);
  if (options.budget_bytes > 0) {
    // Codes prepared beside the 16-bit blocks take the room of the next column: only if there will be one.
    Change next = storage.no_change();
    for (const kv::Move& move : moves.moves) {
      storage.count_move(shape.stored[storage.page(move.page).stored], move.kind, -1, 1, &next);
    }
    if (storage.held_with(next) > options.budget_bytes) return ok_status();
  }
  s.pending.push_back(std::move(moves));
  return ok_status();
}

Status KvCache::Impl::column_ready(Column& column) {
  column.ready = true;
  for (const PageId id : column.pages) {
    if (id == kv::kNoPage) continue;
    ++storage.page(id).ready;
    NEVE_RETURN_IF_ERROR(settle_page(id));
  }
  return ok_status();
}

Status KvCache::Impl::settle_page(PageId id) {
  const Page& page = storage.page(id);
  if (!page.may_be_coded()) return ok_status();
  for (const Kind kind : kKinds) {
    const int level = fixed() ? 1 : by_layer() ? layer_level[page.stored] : 0;
    if (page.next[kind].block != kv::kNoBlock) {
      switch_block(id, kind);
    } else if (level > page.now[kind].level) {
      NEVE_RETURN_IF_ERROR(move_block(id, kind, level));
    }
  }
  return ok_status();
}

void KvCache::Impl::learn_maps(Sequence& s) {
  if (s.maps == nullptr || s.maps->known || s.committed < kv::QueryStatistics::map_tokens(options.spec)) return;
  s.maps->known = true;
  if (!storage.backed()) return;
  for (const Column& column : s.columns) {
    if (column.tokens < kv::kPageTokens) continue;
    for (std::size_t i = 0; i < column.pages.size(); ++i) {
      if (column.pages[i] == kv::kNoPage) continue;
      const Page& page = storage.page(column.pages[i]);
      const kv::Stand& keys = page.now[kv::kKey];
      if (keys.level != 0) continue;
      s.statistics.add_page(static_cast<int>(i),
                            reinterpret_cast<const std::uint16_t*>(storage.codes(page, kv::kKey, keys)),
                            shape.stored[page.stored].dim[kv::kKey]);
    }
  }
  s.maps->maps = s.statistics.make_maps(shape);
  s.statistics = kv::QueryStatistics();
}

// The length at which the oldest column that a sliding-window layer holds is left behind: nothing sees it any more, even
// after a rollback of `window` tokens. Tokens that are not known yet continue by one.
std::int64_t KvCache::Impl::leaves_at(const Sequence& s, const StoredLayer& layer) const {
  for (const Column& column : s.columns) {
    if (column.pages[static_cast<std::size_t>(layer.first_head)] == kv::kNoPage) continue;
    if (!column.ready) break;
    const std::int32_t far = s.positions[static_cast<std::size_t>(column.end() - 1)] + layer.sliding_window;
    const auto first = std::lower_bound(s.positions.begin() + column.end(), s.positions.end(), far);
    std::int64_t index = first - s.positions.begin();
    if (first == s.positions.end()) index += far - s.positions.back() - 1;
    return index + 1 + window();
  }
  return std::numeric_limits<std::int64_t>::max();
}

void KvCache::Impl::free_left_behind(Sequence& s) {
  for (const StoredLayer& layer : shape.stored) {
    if (layer.sliding_window == 0) continue;
    while (leaves_at(s, layer) <= s.committed) {
      const auto first = static_cast<std::size_t>(layer.first_head);
      const auto column = std::find_if(s.columns.begin(), s.columns.end(),
                                       [&](const Column& c) { return c.pages[first] != kv::kNoPage; });
      for (int head = 0; head < layer.kv_heads; ++head) {
        const PageId id = std::exchange(column->pages[first + static_cast<std::size_t>(head)], kv::kNoPage);
        Page& page = storage.page(id);
        --page.ready;
        if (--page.owners == 0) storage.free_page(id);
      }
    }
  }
}

void KvCache::Impl::note_peak() { peak_bytes = std::max(peak_bytes, storage.held_bytes()); }

std::int64_t KvCache::step_limit(int sequence, std::int64_t wanted) const {
  const Impl& impl = *impl_;
  const Sequence* s = impl.find(sequence);
  if (s == nullptr || wanted <= 0) return 0;
  wanted = std::min(wanted, impl.options.max_tokens - s->committed);
  if (impl.options.budget_bytes == 0 && !impl.by_layer()) return std::max<std::int64_t>(0, wanted);
  // Beyond the open column, only what fits without a demotion; else one column at a time.
  const std::int64_t open = s->committed < impl.sinks() ? impl.sinks() - s->committed + kv::kPageTokens : impl.room(*s);
  std::int64_t limit = std::min(wanted, open > 0 ? open : kv::kPageTokens);
  while (limit < wanted) {
    const std::int64_t more = std::min(wanted, limit + kv::kPageTokens);
    Change need = impl.storage.no_change();
    impl.count_columns(impl.new_columns(*s, more), &need);
    if (impl.by_layer() || impl.storage.held_with(need) > impl.options.budget_bytes) break;
    limit = more;
  }
  return limit;
}

std::int64_t KvCache::next_boundary(int sequence) const {
  const Sequence* s = impl_->find(sequence);
  return s == nullptr ? 0 : impl_->next_event(*s);
}

}  // namespace neve
