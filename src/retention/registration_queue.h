// The registration queue (RQ) of section 3.2: buffers to be registered ahead, ordered by deadline, and spaced
// so that the helper can serve each one, and an item of the deregistration queue, before the next is due.
// Owned by the helper; one thread.
#pragma once

#include <set>
#include <unordered_map>

#include "base/clock.h"
#include "predict/predictor.h"

namespace pinion {

class RegistrationQueue {
 public:
  struct Item {
    Time deadline;
    BufferId buffer;
    Duration service;  ///< cost of serving this item plus one item of the deregistration queue
    bool operator<(const Item& o) const {
      return deadline != o.deadline ? deadline < o.deadline : buffer < o.buffer;
    }
  };

  /// Inserts (or moves) a buffer. Deadlines are only ever made earlier: this one if the item after it is too
  /// near, and those before it where it, or they, come too near to their successor.
  void insert(BufferId buffer, Time deadline, Duration service) {
    remove(buffer);
    for (auto after = items_.lower_bound(Item{deadline, 0, 0});
         after != items_.end() && after->deadline < deadline + service;
         after = items_.lower_bound(Item{deadline, 0, 0})) {
      deadline = after->deadline - service;
    }
    put(Item{deadline, buffer, service});
    auto current = items_.find(Item{deadline, buffer, service});
    while (current != items_.begin()) {
      Item before = *std::prev(current);
      if (before.deadline + before.service <= current->deadline) break;
      before.deadline = current->deadline - before.service;
      items_.erase(std::prev(current));
      current = put(before);
    }
  }

  void remove(BufferId buffer) {
    const auto at = deadlines_.find(buffer);
    if (at == deadlines_.end()) return;
    items_.erase(Item{at->second, buffer, 0});
    deadlines_.erase(at);
  }

  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  const Item& first() const { return *items_.begin(); }
  bool contains(BufferId buffer) const { return deadlines_.count(buffer) != 0; }

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::set<Item>::iterator put(const Item& item) {
    deadlines_[item.buffer] = item.deadline;
    return items_.insert(item).first;
  }

  std::set<Item> items_;
  std::unordered_map<BufferId, Time> deadlines_;
};

}  // namespace pinion
