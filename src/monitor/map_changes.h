// Calls that change the process's memory map, while they are on their way to the kernel. A thread that faults
// memory in gives way to them: the kernel lets a reader of the map's lock take it again before a waiting
// writer has woken up, for up to 4 ms.
//
// Owns two counters of the process. MapChange is for the hooks: no locks, any thread, any signal handler. The
// rest is ordinary code of any thread. Nothing is counted while nobody watches.
#pragma once

#include <atomic>

namespace pinion {

class MapChanges {
 public:
  /// Counts while it lives. Calls that are under way already stay uncounted.
  class Watch {
   public:
    Watch();
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
  };

  static bool under_way() { return under_way_.load(std::memory_order_relaxed) > 0; }
  /// Whether the hooks of libc meet the process's calls. Where they do not, nothing is ever under way.
  static bool are_seen() { return seen_.load(std::memory_order_relaxed); }

  // ---- for the hooks ----

  static void set_seen(bool seen) { seen_.store(seen, std::memory_order_relaxed); }
  /// The threads that were counted stayed with the parent.
  static void forget_after_fork();

 private:
  friend class MapChange;
  static std::atomic<int> watchers_, under_way_;
  static std::atomic<bool> seen_;
};

/// One call, in the frame that makes it.
class MapChange {
 public:
  explicit MapChange(bool changes_map)
      : counted_(changes_map && MapChanges::watchers_.load(std::memory_order_relaxed) > 0) {
    if (counted_) MapChanges::under_way_.fetch_add(1, std::memory_order_relaxed);
  }
  ~MapChange() {
    if (counted_) MapChanges::under_way_.fetch_sub(1, std::memory_order_relaxed);
  }
  MapChange(const MapChange&) = delete;
  MapChange& operator=(const MapChange&) = delete;

 private:
  const bool counted_;
};

}  // namespace pinion
