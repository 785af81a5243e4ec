// A lock-free list of regions. Any thread, hooks included, pushes regions without allocation; one reader at a
// time takes the whole list. The link is in the region (`Link`). A region is on the list at most once: a
// mark of its word decides that (region_word.h). Only whole lists are taken, so a region that comes back
// meanwhile is harmless.
#pragma once

#include "base/atomics.h"

namespace pinion {

template <class R, R* R::*Link, class Atomics = StdAtomics>
class RegionStack {
 public:
  void push(R* region) {
    R* head = head_.load(std::memory_order_relaxed);
    do {
      region->*Link = head;
    } while (
        !head_.compare_exchange_weak(head, region, std::memory_order_release, std::memory_order_relaxed));
  }
  /// The newest of all, linked; null: none.
  R* take() { return head_.exchange(nullptr, std::memory_order_acquire); }
  bool empty() const { return head_.load(std::memory_order_relaxed) == nullptr; }

 private:
  typename Atomics::template Atomic<R*> head_{nullptr};
};

}  // namespace pinion
