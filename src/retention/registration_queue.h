// The registration queue (RQ) of section 3.2: buffers to be registered ahead, ordered by deadline. The helper
// serves one after the other. The queue spaces them so that each is complete by its deadline, with an item of
// the deregistration queue in between. All deadlines can be made earlier at once.
// Owned by the helper; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "predict/predictor.h"

namespace pinion {

class RegistrationQueue {
 public:
  struct Item {
    Time deadline;
    Time asked;  ///< as given to insert()
    BufferId buffer;
    Duration service;  ///< cost of serving this item plus one item of the deregistration queue
  };

  /// Inserts (or moves) a buffer. Deadlines are only ever made earlier: this one where it would come too near
  /// to the item after it, and those before it where they would.
  void insert(BufferId buffer, Time deadline, Duration service) {
    remove(buffer);
    if (empty()) advanced_ = 0;
    const Time asked = deadline + advanced_;
    deadline = asked;
    std::size_t at = place(deadline);
    while (at < items_.size() && items_[at].deadline <= deadline) ++at;
    items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(at), {deadline, asked, buffer, service});
    if (buffer >= deadlines_.size()) deadlines_.resize(buffer + std::size_t{1}, kNever);
    deadlines_[buffer] = deadline;
    for (; at > first_; --at) {
      const Time latest = items_[at].deadline - items_[at].service;
      Item& before = items_[at - 1];
      if (before.deadline <= latest) break;
      before.deadline = deadlines_[before.buffer] = latest;
    }
  }

  void remove(BufferId buffer) {
    if (!contains(buffer)) return;
    std::size_t at = first_;
    if (items_[at].buffer != buffer) at = not_before(deadlines_[buffer]);
    while (items_[at].buffer != buffer) ++at;
    deadlines_[buffer] = kNever;
    // Mostly it is the first one. Those that have left are cleared away together.
    if (at != first_)
      items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(at));
    else if (++first_ * 2 >= items_.size())
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(std::exchange(first_, 0)));
  }

  /// The deadline that insert() would set for `deadline`: less the service of those that would have to be
  /// served right before.
  Time room(Time deadline, Duration service) const {
    deadline += advanced_;
    std::size_t at = place(deadline);
    while (at < items_.size() && items_[at].deadline <= deadline) ++at;
    Time start = deadline - service;
    for (; at > first_ && items_[at - 1].deadline > start; --at) start -= items_[at - 1].service;
    return start + service - advanced_;
  }

  /// Makes all deadlines earlier.
  void advance(Duration by) { advanced_ += by; }

  bool empty() const { return size() == 0; }
  std::size_t size() const { return items_.size() - first_; }
  Item first() const { return item(items_[first_]); }
  bool contains(BufferId buffer) const { return buffer < deadlines_.size() && deadlines_[buffer] != kNever; }
  template <class F>
  void for_each(F&& f) const {  ///< f(item), by deadline
    for (std::size_t at = first_; at < items_.size(); ++at) f(item(items_[at]));
  }

 private:
  Item item(const Item& kept) const {
    return {kept.deadline - advanced_, kept.asked - advanced_, kept.buffer, kept.service};
  }

  /// Returns the place of the first item that is due at `deadline` or later.
  std::size_t not_before(Time deadline) const {
    std::size_t at = first_;
    for (std::size_t n = items_.size() - first_; n > 0;) {
      const std::size_t half = n / 2;
      const bool before = items_[at + half].deadline < deadline;
      at += before ? half + 1 : 0;
      n = before ? n - half - 1 : half;
    }
    return at;
  }
  /// Makes `deadline` so early that the item after it keeps its time, and returns its place.
  std::size_t place(Time& deadline) const {
    std::size_t at = not_before(deadline);
    while (at < items_.size() && deadline > items_[at].deadline - items_[at].service) {
      deadline = items_[at].deadline - items_[at].service;
      while (at > first_ && items_[at - 1].deadline >= deadline) --at;
    }
    return at;
  }

  std::vector<Item> items_;      ///< by deadline, from first_ on; both times plus advanced_
  std::size_t first_ = 0;        ///< those before have left
  Duration advanced_ = 0;        ///< since the queue was last empty
  std::vector<Time> deadlines_;  ///< by buffer, as in its item; kNever: not in the queue
};

}  // namespace pinion
