// Memory events as brackets: open(range) before the system call that changes memory, close(range) after it;
// in between the range is refused. Owns the set of open brackets, and whether all changes are bracketed
// (sight.h). Lock-free, allocation-free, callable from hooks and signal handlers. A bracket is closed by the
// thread that opened it.
//
// Against registration it works as Dekker's protocol: a hook publishes its bracket and then looks for
// regions; a registering thread publishes its region (in the index) and then looks for brackets. Both sides
// use sequentially consistent operations, so at least one of them sees the other.
#pragma once

#include <pthread.h>

#include <array>

#include "base/atomics.h"
#include "base/range.h"
#include "monitor/sight.h"

namespace pinion {

template <class Atomics = StdAtomics, std::size_t Slots = 64>
class BasicBrackets {
 public:
  BasicSight<Atomics> sight;

  void open(Range r) {
    for (auto& slot : slots_) {
      Address free = kFree;
      if (slot.begin.load(std::memory_order_relaxed) != kFree ||
          !slot.begin.compare_exchange_strong(free, kClaimed, std::memory_order_acq_rel))
        continue;
      slot.owner.store(::pthread_self(), std::memory_order_relaxed);
      slot.end.store(r.end, std::memory_order_relaxed);
      slot.begin.store(encode(r.begin), std::memory_order_seq_cst);
      return;
    }
    // More threads inside brackets than slots: until they are out, every range counts as changing.
    overflow_.fetch_add(1, std::memory_order_seq_cst);
  }

  void close(Range r) {
    // Threads may hold equal brackets. Each closes its own, which others leave alone, so that the look and
    // the store may be two steps.
    for (auto& slot : slots_) {
      if (slot.begin.load(std::memory_order_acquire) != encode(r.begin) ||
          slot.owner.load(std::memory_order_relaxed) != ::pthread_self() ||
          slot.end.load(std::memory_order_relaxed) != r.end)
        continue;
      slot.begin.store(kFree, std::memory_order_release);
      return;
    }
    // An end without its begin is ignored: counted, it would make every range count as changing for ever.
    int over = overflow_.load(std::memory_order_relaxed);
    while (over > 0 && !overflow_.compare_exchange_weak(over, over - 1, std::memory_order_seq_cst,
                                                        std::memory_order_relaxed)) {
    }
  }

  /// Drops the brackets of threads that are missing in a forked child, and would stay open for ever.
  void forget_other_threads() {
    for (auto& slot : slots_) {
      if (slot.begin.load(std::memory_order_relaxed) > kClaimed &&
          slot.owner.load(std::memory_order_relaxed) == ::pthread_self())
        continue;
      slot.begin.store(kFree, std::memory_order_relaxed);
    }
    overflow_.store(0, std::memory_order_relaxed);
  }

  /// Whether another thread has this very bracket open.
  bool opened_by_another(Range r) const {
    for (const auto& slot : slots_) {
      if (slot.begin.load(std::memory_order_acquire) == encode(r.begin) &&
          slot.end.load(std::memory_order_relaxed) == r.end &&
          slot.owner.load(std::memory_order_relaxed) != ::pthread_self())
        return true;
    }
    return false;
  }

  bool changing(Range r) const {
    if (overflow_.load(std::memory_order_seq_cst) != 0) return true;
    for (const auto& slot : slots_) {
      if (crosses(slot, r)) return true;
    }
    return false;
  }

  /// Whether the calling thread itself is inside an event of the range, whose end it must not wait for.
  /// Events beyond the slots are unknown here.
  bool changed_by_caller(Range r) const {
    for (const auto& slot : slots_) {
      if (crosses(slot, r) && slot.owner.load(std::memory_order_relaxed) == ::pthread_self()) return true;
    }
    return false;
  }

 private:
  static constexpr Address kFree = 0;
  static constexpr Address kClaimed = 1;
  // Page-aligned or not, an address may be 0 or 1 (mmap at the zero page): shifted so that those are not
  // taken for marks.
  static Address encode(Address begin) { return begin + kClaimed + 1; }

  struct Slot {
    typename Atomics::template Atomic<Address> begin{kFree};
    typename Atomics::template Atomic<Address> end{0};
    typename Atomics::template Atomic<pthread_t> owner{};
  };

  static bool crosses(const Slot& slot, Range r) {
    const Address begin = slot.begin.load(std::memory_order_seq_cst);
    return begin > kClaimed && r.overlaps({begin - kClaimed - 1, slot.end.load(std::memory_order_relaxed)});
  }

  std::array<Slot, Slots> slots_;
  typename Atomics::template Atomic<int> overflow_{0};
};

using Brackets = BasicBrackets<>;

}  // namespace pinion
