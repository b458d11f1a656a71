#include "kv/demotion_queue.h"

namespace neve::kv {

void DemotionQueue::push(PageId page, Kind kind, int level) {
  const std::size_t at = index(kind, level);
  if (at < queues_.size()) queues_[at].push_back({page, kind});
}

bool DemotionQueue::pop(const std::function<bool(const Choice&)>& valid,
                        const std::function<bool(const Choice&)>& eligible, Choice* choice) {
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    std::deque<Entry>& queue = queues_[q];
    for (auto entry = queue.begin(); entry != queue.end();) {
      const Choice candidate = {entry->page, entry->kind, static_cast<int>(q / 2)};
      if (!valid(candidate)) {
        entry = queue.erase(entry);
      } else if (eligible(candidate)) {
        *choice = candidate;
        queue.erase(entry);
        return true;
      } else {
        ++entry;
      }
    }
  }
  return false;
}

void DemotionQueue::put_back(const Choice& choice) {
  queues_[index(choice.kind, choice.level)].push_front({choice.page, choice.kind});
}

void DemotionQueue::for_each(const std::function<void(const Choice&)>& visit) const {
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    for (const Entry& entry : queues_[q]) visit({entry.page, entry.kind, static_cast<int>(q / 2)});
  }
}

std::size_t DemotionQueue::metadata_bytes() const {
  std::size_t bytes = 0;
  for (const auto& queue : queues_) bytes += queue.size() * sizeof(Entry);
  return bytes;
}

}  // namespace neve::kv
