// The upper rooms' side of memory events: a sink has each event, in hooks, and may hold a change back. The
// engine is a sink, so is the monitor that libfabric's cache imports; memory_events.h has their array.
//
// A sink is never destroyed: remove() returns while hooks may still be inside the sink, and they may stay
// there for as long as the scheduler pleases. It lies in static memory, or is left to the process's end.
#pragma once

#include <array>
#include <cstddef>

#include "base/atomics.h"
#include "monitor/memory_change.h"

namespace pinion {

/// Law for all functions: any thread, any signal handler, a child of vfork. They never allocate, block, take
/// a lock that ordinary code holds while it allocates, or call a libc function that may do so. One exception:
/// a sink with remote holders of the memory may wait for them, for a bounded time, before it answers a change
/// that can only be refused.
class MemorySink {
 public:
  /// Before the change, within its bracket: the old contents are still there. Every registration of the range
  /// is doomed here, with any answer. The change may still fail, or be held back for another sink. An answer
  /// other than the change's alternative counts as `proceed`.
  virtual Answer changing(const MemoryChange& change) = 0;
  /// Every sink lets a munmap end with `done`: the memory stays mapped. Within the bracket, and only for a
  /// munmap that was not held back: of that one the program may use the memory again by now.
  virtual void unmapped(Range) {}
  /// Called after the bracket was closed. A sink that was added in between has this call alone.
  virtual void changed(Range) {}
  /// A plain mapping (NewMapping) of so many bytes is about to appear.
  virtual MappingWish wish(std::size_t) { return {}; }
  /// A mapping has appeared where the kernel had none: a registration there is stale, and its end went by
  /// unseen. Without a bracket, because only its caller has the memory's address.
  virtual void appeared(const NewMapping&) {}
  /// The dynamic linker has unmapped code.
  virtual void code_unloaded() {}

 protected:
  constexpr MemorySink() = default;
  ~MemorySink() = default;
};

/// A few sinks. Hooks walk the array by loads alone; add() and remove() are ordinary code of any thread.
///
/// A sink that is added, and then registers memory, works as a region does against the brackets (brackets.h):
/// the hook publishes its bracket and then looks for sinks; the sink publishes itself and then looks for
/// brackets. Both sides are sequentially consistent, so at least one of them sees the other.
template <class Sink, class Atomics = StdAtomics, std::size_t Slots = 8>
class BasicSinkArray {
 public:
  /// False: the array is full.
  bool add(Sink& sink) {
    for (auto& slot : slots_) {
      Sink* empty = nullptr;
      if (slot.compare_exchange_strong(empty, &sink, std::memory_order_seq_cst)) return true;
    }
    return false;
  }
  /// Walks that begin from now on leave it out. It may be added again at any time.
  void remove(Sink& sink) {
    for (auto& slot : slots_) {
      Sink* found = &sink;
      if (slot.compare_exchange_strong(found, nullptr, std::memory_order_seq_cst)) return;
    }
  }
  /// Calls visit(sink) for each sink added before and still there.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& slot : slots_) {
      if (Sink* const sink = slot.load(std::memory_order_seq_cst)) visit(*sink);
    }
  }

 private:
  alignas(64) std::array<typename Atomics::template Atomic<Sink*>, Slots> slots_{};
};

}  // namespace pinion
