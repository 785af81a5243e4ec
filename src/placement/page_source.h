// Where the heap's hugepages come from: the kernel (kernel_pages.h); in tests, a source that fails at will.
//
// map(), map_records() and unmap_records() are called under a shard's lock: they concern only memory that the
// program never saw, and make their system calls directly. discard(), offer() and unmap() are called without
// any lock of the heap: they end what the program had, and run other libraries' hooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/range.h"

namespace pinion {

/// Areas are multiples of this, and aligned to it.
constexpr std::size_t kHugepage = std::size_t{2} << 20;

enum class Backing : std::uint8_t {
  pool,         ///< reserved hugepages (hugetlbfs), taken when mapped
  transparent,  ///< advised: hugepages where the kernel has them at first touch
  base,         ///< the system's page size
};
constexpr std::size_t kBackings = 3;

/// Whole hugepages of one backing; an empty range: none.
struct Pages {
  Range range;
  Backing backing = Backing::base;
  bool whole = false;  ///< goes back to the source as a whole only
};

/// What is left of memory that was recycled.
enum class Recycled : std::uint8_t { refused, kept, zeroed };

/// Mutexes of this room that the thread holds, or is about to take. A signal handler in between must take
/// none.
inline constinit thread_local unsigned t_held_mutexes = 0;
inline bool is_inside_heap() { return t_held_mutexes != 0; }

void pause_before_try(int number);
/// Whether the condition comes to hold within about 100 ms. A collector may have stopped the thread that has
/// to bring it about, and may call before it lets that thread go on.
template <class Condition>
bool holds_soon(Condition&& condition) {
  constexpr int kTries = 1100;
  for (int i = 0; i < kTries; ++i) {
    if (condition()) return true;
    pause_before_try(i + 1);
  }
  return false;
}
/// Whether the mutex is free, or comes free soon.
bool comes_free(std::mutex& mutex);

class PageSource {
 public:
  /// `wanted` bytes of zeros, or fewer, `least` at least. Both are whole hugepages.
  virtual Pages map(std::size_t least, std::size_t wanted) = 0;
  /// Gives the contents back to the kernel; the range then reads as zeros. False: it is as before.
  virtual bool discard(Range hugepages) = 0;
  /// The kernel may take the contents when memory is short: each page then reads as before or as zeros, until
  /// it is written to. False: all is as before.
  virtual bool offer(Range hugepages) = 0;
  virtual void unmap(const Pages& pages) = 0;
  /// Before memory becomes a block: undoes what the program did to it, such as taking its rights away. No
  /// lock is held. False: the memory stays as it is, and is laid_over().
  virtual bool make_whole(Range) { return true; }
  /// The first part over which the program has laid other mappings since reclaim(); empty: there is none. The
  /// heap may have no block there; the memory is the program's all the same. Lock-free.
  virtual Range laid_over(Range) const { return {}; }
  /// Puts memory of zeros in the place of such mappings, before a block is free. False: some of them stay. No
  /// lock is held.
  virtual bool reclaim(Range) { return true; }
  /// Ends such mappings outside of blocks: munmap. Whether there were any. No lock is held.
  virtual bool vacate(Range) { return false; }
  /// The program is about to lay a mapping there: from now on the memory is laid_over(). False: another
  /// thread gives it to the kernel, or takes it.
  virtual bool lay_over(Range) { return false; }
  /// Whether the program has unmapped memory past HugepageHeap::unmap() since this was asked.
  virtual bool withholds() { return false; }
  /// The first such part of a block, which is so no more; empty: none. Lock-free.
  virtual Range take_withheld(Range) { return {}; }
  /// Whether the program may have this memory by mmap.
  virtual bool serves_mappings(Range) const { return false; }
  /// Whether no other thread stays inside (comes_free()).
  virtual bool is_open() { return true; }
  /// Memory of a mapping that has ended, before it is free: readable and writable, whatever the program did
  /// to it. Refused: it stays out of use. No lock is held.
  virtual Recycled recycle(Range) { return Recycled::kept; }

  /// Zeros for the heap's own records; null: none.
  virtual void* map_records(std::size_t bytes) = 0;
  virtual void unmap_records(void* records, std::size_t bytes) = 0;

  // As pthread_atfork() has them, under all locks of the heap. In between the forking thread may call.
  virtual void before_fork() {}
  virtual void after_fork_in_parent() {}
  virtual void after_fork_in_child() {}
  /// Whether children of the fork under way lack the pages.
  virtual bool hides_from_children(const Pages& pages) const { return pages.backing == Backing::pool; }
  /// Unmaps those parts of a child's copy of such pages that children have all the same.
  virtual void leave_out(Range, Range) const {}

 protected:
  constexpr PageSource() = default;
  ~PageSource() = default;
};

}  // namespace pinion
