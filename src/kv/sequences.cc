// Sequences: add, fork, truncate, remove.
#include <algorithm>
#include <string>

#include "kv/cache_impl.h"

namespace neve {

using kv::Column;
using kv::Kind;
using kv::kKinds;
using kv::Page;
using kv::PageId;
using kv::Sequence;

kv::Sequence* KvCache::Impl::find(int sequence) const {
  if (sequence < 0 || static_cast<std::size_t>(sequence) >= sequences.size()) return nullptr;
  Sequence* s = sequences[static_cast<std::size_t>(sequence)].get();
  return s != nullptr && s->alive ? s : nullptr;
}

Status KvCache::Impl::need_sequence(int sequence, Sequence** found) const {
  *found = find(sequence);
  if (*found != nullptr) return ok_status();
  return Status(Code::kNotFound, "cache: there is no sequence " + std::to_string(sequence));
}

Result<int> KvCache::add_sequence() {
  Impl& impl = *impl_;
  std::size_t id = 0;
  while (id < impl.sequences.size() && impl.sequences[id]->alive) ++id;
  if (id >= static_cast<std::size_t>(impl.options.max_sequences)) {
    return Status(Code::kInvalidArgument,
                  "cache: wanted at most " + std::to_string(impl.options.max_sequences) + " sequences (max_sequences)");
  }
  if (id == impl.sequences.size()) impl.sequences.emplace_back();
  impl.sequences[id] = std::make_unique<Sequence>();
  Sequence& s = *impl.sequences[id];
  s.id = static_cast<std::uint32_t>(id);
  s.alive = true;
  if (impl.shape.graded) {
    s.maps = std::make_shared<kv::MapSlot>();
    s.statistics.start(impl.shape);
  }
  return static_cast<int>(id);
}

Status KvCache::Impl::release_columns(Sequence& s, std::size_t keep) {
  Status first_error;
  for (; s.columns.size() > keep; s.columns.pop_back()) {
    const Column& column = s.columns.back();
    for (const PageId id : column.pages) {
      if (id == kv::kNoPage) continue;
      Page& page = storage.page(id);
      if (column.ready) --page.ready;
      if (--page.owners == 0) {
        storage.free_page(id);
        continue;
      }
      const Status settled = settle_page(id);
      if (!settled.ok() && first_error.ok()) first_error = settled;
    }
  }
  return first_error;
}

void KvCache::Impl::release_sinks(Sequence& s) {
  if (s.sinks != nullptr && s.sinks.use_count() == 1) {
    storage.add_other_bytes(-static_cast<std::int64_t>(shape.sink_bytes(options.spec.sinks)));
  }
  s.sinks.reset();
}

Status KvCache::remove_sequence(int sequence) {
  Impl& impl = *impl_;
  Sequence* s = nullptr;
  NEVE_RETURN_IF_ERROR(impl.need_sequence(sequence, &s));
  impl.forget_moves(*s);
  const Status released = impl.release_columns(*s, 0);
  impl.release_sinks(*s);
  s->alive = false;
  impl.storage.trim();
  return released;
}

Result<int> KvCache::fork_sequence(int sequence) {
  Impl& impl = *impl_;
  Sequence* s = nullptr;
  NEVE_RETURN_IF_ERROR(impl.need_sequence(sequence, &s));
  if (!impl.parts.empty()) return Status(Code::kInvalidArgument, "fork: a step is under way");
  const bool open_tail = !s->columns.empty() && s->columns.back().tokens < kv::kPageTokens && !s->columns.back().closed;
  const bool copy_sinks = s->sinks != nullptr && s->committed < impl.sinks();
  kv::Change need = impl.storage.no_change();
  if (open_tail) impl.count_columns(1, &need);
  if (copy_sinks) need.other_bytes += static_cast<std::int64_t>(impl.shape.sink_bytes(impl.options.spec.sinks));
  NEVE_RETURN_IF_ERROR(impl.make_room(need, open_tail ? 1 : 0));
  const Result<int> added = add_sequence();
  if (!added.ok()) return added.status();
  s = impl.find(sequence);
  Sequence& copy = *impl.find(*added);
  copy.committed = s->committed;
  copy.positions = s->positions;
  copy.maps = s->maps;
  copy.statistics = s->statistics;
  copy.sinks = s->sinks;
  if (copy_sinks) {
    copy.sinks = std::make_shared<kv::Sinks>(*s->sinks);
    impl.storage.add_other_bytes(static_cast<std::int64_t>(impl.shape.sink_bytes(impl.options.spec.sinks)));
  }
  const std::size_t shared = s->columns.size() - (open_tail ? 1 : 0);
  for (std::size_t i = 0; i < shared; ++i) {
    copy.columns.push_back(s->columns[i]);
    for (const PageId id : s->columns[i].pages) {
      if (id == kv::kNoPage) continue;
      Page& page = impl.storage.page(id);
      ++page.owners;
      if (s->columns[i].ready) ++page.ready;
    }
  }
  if (open_tail) {
    const Column& from = s->columns.back();
    const Status made = impl.add_column(copy, from.first);
    if (!made.ok()) {
      (void)remove_sequence(*added);
      return made;
    }
    Column& to = copy.columns.back();
    to.tokens = from.tokens;
    for (std::size_t i = 0; i < to.pages.size() && impl.storage.backed(); ++i) {
      const Page& source = impl.storage.page(from.pages[i]);
      const Page& target = impl.storage.page(to.pages[i]);
      for (const Kind kind : kKinds) {
        const std::uint64_t bytes = impl.shape.block_bytes(impl.shape.stored[source.stored], kind, 0);
        std::copy_n(impl.storage.codes(source, kind, source.now[kind]), bytes,
                    impl.storage.codes(target, kind, target.now[kind]));
      }
    }
  }
  impl.note_peak();
  return added;
}

bool KvCache::Impl::sees_freed_page(const Sequence& s, std::int64_t tokens) const {
  if (tokens == 0) return false;
  const std::int32_t newest = s.positions[static_cast<std::size_t>(tokens - 1)];
  for (const Column& column : s.columns) {
    if (column.first >= tokens || column.tokens == 0) continue;
    const std::int32_t last = s.positions[static_cast<std::size_t>(std::min(column.end(), tokens) - 1)];
    for (std::size_t i = 0; i < column.pages.size(); ++i) {
      if (column.pages[i] != kv::kNoPage) continue;
      const auto layer = std::find_if(shape.stored.rbegin(), shape.stored.rend(),
                                      [&](const kv::StoredLayer& l) { return l.first_head <= static_cast<int>(i); });
      if (last > newest - layer->sliding_window) return true;
    }
  }
  return false;
}

Status KvCache::truncate(int sequence, std::int64_t tokens) {
  Impl& impl = *impl_;
  Sequence* s = nullptr;
  NEVE_RETURN_IF_ERROR(impl.need_sequence(sequence, &s));
  if (tokens < 0 || tokens > s->committed || !impl.parts.empty()) {
    return Status(Code::kInvalidArgument, "truncate: sequence " + std::to_string(sequence) + ": wanted 0 to " +
                                              std::to_string(s->committed) + " tokens outside a step, got " +
                                              std::to_string(tokens));
  }
  if (tokens == s->committed) return ok_status();
  if (impl.sees_freed_page(*s, tokens)) {
    return Status(Code::kUnsupported, "truncate: sequence " + std::to_string(sequence) + " to " +
                                          std::to_string(tokens) +
                                          " tokens: a sliding-window layer has freed pages that its last token sees");
  }
  impl.forget_moves(*s);
  std::size_t keep = s->columns.size();
  while (keep > 0 && s->columns[keep - 1].first >= tokens) --keep;
  NEVE_RETURN_IF_ERROR(impl.release_columns(*s, keep));
  s->committed = tokens;
  s->positions.resize(static_cast<std::size_t>(tokens));
  if (!s->columns.empty() && s->columns.back().end() > tokens) {
    Column& last = s->columns.back();
    last.tokens = static_cast<int>(tokens - last.first);
    // A page that is coded or has other owners takes no more tokens: the next ones start a new page.
    const auto untouched = [&](PageId id) {
      if (id == kv::kNoPage) return false;
      const Page& page = impl.storage.page(id);
      return page.owners == 1 && page.now[kv::kKey].level == 0 && page.now[kv::kValue].level == 0;
    };
    last.closed = last.closed || !std::all_of(last.pages.begin(), last.pages.end(), untouched);
    for (const PageId id : last.pages) {
      if (id == kv::kNoPage) continue;
      Page& page = impl.storage.page(id);
      if (last.ready && !last.closed) --page.ready;
      for (const Kind kind : kKinds) impl.storage.free(page, kind, &page.next[kind]);
      if (!last.closed) page.tokens = 0;
    }
    if (!last.closed) last.ready = false;
  }
  impl.storage.trim();
  return ok_status();
}

std::int64_t KvCache::tokens(int sequence) const {
  const Sequence* s = impl_->find(sequence);
  return s == nullptr ? -1 : s->committed;
}

}  // namespace neve
