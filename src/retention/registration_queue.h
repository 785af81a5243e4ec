// The registration queue (RQ) of section 3.2: buffers to be registered ahead, ordered by deadline, and spaced
// so that the helper, which serves one after the other, completes each by its deadline, and an item of the
// deregistration queue in between. All deadlines can be made earlier at once.
// Owned by the helper; one thread.
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "predict/predictor.h"

namespace pinion {

class RegistrationQueue {
 public:
  struct Item {
    Time deadline;
    Time asked;  ///< what insert() was asked for
    BufferId buffer;
    Duration service;  ///< cost of serving this item plus one item of the deregistration queue
  };

  RegistrationQueue() = default;
  RegistrationQueue(const RegistrationQueue&) = delete;  // at_ points into items_
  RegistrationQueue& operator=(const RegistrationQueue&) = delete;

  /// Inserts (or moves) a buffer. Deadlines are only ever made earlier: this one where it would come too near
  /// to the item after it, and those before it where they would.
  void insert(BufferId buffer, Time deadline, Duration service) {
    remove(buffer);
    if (items_.empty()) advanced_ = 0;
    const Entry entry{spaced(deadline + advanced_), deadline + advanced_, buffer, service};
    Items::iterator current;
    if (spare_) {
      spare_.value() = entry;
      current = items_.insert(std::move(spare_));
    } else {
      current = items_.insert(entry);
    }
    if (buffer >= at_.size()) at_.resize(buffer + std::size_t{1}, items_.end());
    at_[buffer] = current;
    while (current != items_.begin()) {
      const auto before = std::prev(current);
      const Time latest = current->deadline - current->service;
      if (before->deadline <= latest) break;
      before->deadline = latest;
      current = before;
    }
  }

  void remove(BufferId buffer) {
    if (!contains(buffer)) return;
    spare_ = items_.extract(at_[buffer]);
    at_[buffer] = items_.end();
  }

  /// What insert() would leave of `deadline`: less the service of those that would have to be served right
  /// before.
  Time room(Time deadline, Duration service) const {
    deadline = spaced(deadline + advanced_);
    Time start = deadline - service;
    for (auto before = items_.upper_bound(deadline); before != items_.begin();) {
      --before;
      if (before->deadline <= start) break;
      start -= before->service;
    }
    return start + service - advanced_;
  }

  /// Makes all deadlines earlier.
  void advance(Duration by) { advanced_ += by; }

  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  Item first() const { return item(*items_.begin()); }
  bool contains(BufferId buffer) const { return buffer < at_.size() && at_[buffer] != items_.end(); }
  template <class F>
  void for_each(F&& f) const {  ///< f(item), by deadline
    for (const Entry& entry : items_) f(item(entry));
  }

 private:
  struct Entry {
    // Both plus `advanced_`.
    mutable Time deadline;  ///< made earlier in place, which never changes the order
    Time asked;
    BufferId buffer;
    Duration service;
  };
  struct ByDeadline {
    using is_transparent = void;
    bool operator()(const Entry& a, const Entry& b) const { return a.deadline < b.deadline; }
    bool operator()(const Entry& a, Time b) const { return a.deadline < b; }
    bool operator()(Time a, const Entry& b) const { return a < b.deadline; }
  };
  using Items = std::multiset<Entry, ByDeadline>;

  Item item(const Entry& entry) const {
    return {entry.deadline - advanced_, entry.asked - advanced_, entry.buffer, entry.service};
  }

  /// `deadline`, or earlier so that the item after it keeps its time.
  Time spaced(Time deadline) const {
    for (auto after = items_.lower_bound(deadline);
         after != items_.end() && deadline > after->deadline - after->service;
         after = items_.lower_bound(deadline)) {
      deadline = after->deadline - after->service;
    }
    return deadline;
  }

  Items items_;
  Duration advanced_ = 0;                  ///< since the queue was last empty
  std::vector<Items::const_iterator> at_;  ///< by buffer; end: not in the queue
  Items::node_type spare_;                 ///< of the item that left last: the next one needs no allocation
};

}  // namespace pinion
