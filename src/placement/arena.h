// The arena: addresses of this process whose memory devices register in whole segments, once. The heap takes
// its areas from it; each area is a segment. A block's request is then served by its segment's registration
// (engine/arena_leases.h).
//
// Owns the reserved addresses, in granules of 32 MiB, and the table of segments. The mutex guards the table.
// It is a leaf: under it, no other lock is taken, no hook runs, nothing is allocated. map() is called under a
// shard's mutex; all else without. Any thread; never a hook.
//
// A segment that a device may have registered is *pinned*. It is hidden from forked children: the kernel
// would copy its pages at the fork, one by one. The heap copies the blocks for the child instead
// (hugepage_heap.h). A pinned segment that the heap gives back is *left*: its registrations are doomed at
// once, and its memory goes after unpin(). So there is never a hole under a registration, and new memory is
// always fresh from the kernel. Memory that the program itself keeps from its children (MADV_DONTFORK) stays
// so, whether its segment is pinned or not, until its block ends.
//
// The program may take rights from memory of a block, or put another mapping in its place, and then free the
// block. Marks on chunks have both. A segment is registered without marked chunks: the longest part between
// them. The heap makes marked memory whole when it becomes a block again.
//
// A mapping of the program over memory that the heap has free is the program's: the heap keeps off it until
// the program unmaps it. Free granules and segments that were left stay out of use as long. No mapping gets
// between the look at a granule and the system call that gives or takes its memory: it waits, or is refused.
//
// ALIASED. By option, segments are shared memory with two views, as preregistration-eurompi16 has it. The
// program knows one, and devices register the other, which no call of the program reaches. The heap keeps
// both while the segment lasts. Children lack them at any time, for they would share what they write: they
// get copies of the blocks, in ordinary memory. Where the system refuses a second view, the segment is
// private memory like any other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "placement/chunk_marks.h"
#include "placement/page_source.h"

namespace pinion {

class Arena final : public PageSource {
 public:
  static constexpr std::size_t kGranule = std::size_t{32} << 20;
  static constexpr std::size_t kMostGranules = 1024;

  /// `other`: the source of areas without an arena, and beyond it.
  constexpr explicit Arena(PageSource& other) : other_(other) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Before threads allocate. `beyond`: the heap may grow beyond the arena. False: the system has no such
  /// addresses.
  bool reserve(std::size_t bytes, bool beyond);
  /// Whether new segments have a second view. Before threads allocate.
  void alias_segments(bool aliased) { aliases_ = aliased; }
  /// All its addresses; empty without an arena. Constant once reserved.
  const Range& range() const { return range_; }

  // ---- the heap ----

  Pages map(std::size_t least, std::size_t wanted) override;
  bool discard(Range hugepages) override { return other_.discard(hugepages); }
  bool offer(Range hugepages) override { return other_.offer(hugepages); }
  void unmap(const Pages& pages) override;
  bool make_whole(Range block) override;
  Range laid_over(Range range) const override;
  bool reclaim(Range block) override;
  bool vacate(Range range) override;
  bool lay_over(Range range) override;
  bool withholds() override { return withholds_.exchange(false); }
  Range take_withheld(Range block) override;
  bool serves_mappings(Range range) const override { return range_.contains(range); }
  bool is_open() override;
  Recycled recycle(Range range) override;
  void* map_records(std::size_t bytes) override { return other_.map_records(bytes); }
  void unmap_records(void* records, std::size_t bytes) override { other_.unmap_records(records, bytes); }
  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;
  bool hides_from_children(const Pages& pages) const override;
  void leave_out(Range area, Range copy) const override;

  // ---- devices ----

  /// The segment at the address, if the heap has it; else an empty range.
  Range segment_at(Address address);
  /// Before a registration: the part to register, which contains the request. Empty: there is none.
  Range pin(Range segment, Range request);
  /// The second view of memory in one segment; empty: it has none. Lock-free.
  Range view_of(Range range) const;
  /// Whether the range, wherever it is, begins in memory with two views. Lock-free.
  bool has_views(Range range) const;
  /// After its last deregistration. True: the heap has left it; give_back() must follow.
  bool unpin(Range segment);
  /// The memory of a segment that was left. Ordinary code: runs hooks.
  void give_back(Range segment);

  // ---- hooks ----

  // Lock-free. The range lies in the arena.

  /// The program takes rights from this memory.
  void note_deprived(Range range);
  /// Other pages are about to take the place of this memory.
  void note_replaced(Range range);
  /// Other threads give or take the memory of its granules: no mapping may be laid there now.
  bool is_in_change(Range range) const;
  bool is_whole(Range range) const { return !deprived_.any(range) && !is_replaced(range); }
  bool is_replaced(Range range) const { return replaced_.any(range); }
  /// Before madvise. An error number, or 0 for success, is the answer; none: the kernel is to give it.
  /// `wish`: the program's call, and no device's.
  std::optional<int> advise(Range range, int advice, bool wish);
  /// Leaves the memory mapped without rights: that of blocks for the heap, other mappings unmapped. False:
  /// the kernel has refused.
  bool withhold(Range range);

  /// mlockall: whether the kernel locks new memory of the process.
  void note_locks_future(bool locks) { locks_future_.store(locks, std::memory_order_relaxed); }

  struct Figures {
    std::uint64_t segments = 0, most_segments = 0;
    std::uint64_t bytes = 0, most_bytes = 0;  ///< of the segments
    std::uint64_t cleared = 0;                ///< bytes of zeros written, in second views
  };
  Figures figures();

 private:
  class Locked;
  class Changing;
  struct Segment {
    Range range;          ///< empty: no segment begins at this granule
    bool of_heap = true;  ///< false: left, or on its way out
    bool pinned = false;
  };

  std::size_t granule_of(Address address) const { return (address - range_.begin) / kGranule; }
  Segment& segment_of(Range range) { return segments_[granule_of(range.begin)]; }
  /// Of an address that the heap has.
  Segment& segment_around(Address address) { return segments_[first_[granule_of(address)] - 1u]; }
  /// The first granule of so many free ones; kMostGranules: there are none.
  std::size_t find_free(std::size_t granules) const;
  Pages take(std::size_t bytes);
  bool commit(Pages& pages);
  bool commit_aliased(Pages& pages);
  bool make_fresh(Range range);
  bool drop(Range range);
  std::optional<int> advise_viewed(Range range, int advice);
  void clear(Range range);
  void show(Range range) const;
  template <class Visit>
  void for_each_granule(Range range, Visit&& visit) const;
  void forget(Segment& segment);
  Range left_segment_at(Address address);
  void unlock(Range range) const;
  bool renew(Range range);
  bool is_pinned(Address address);
  bool is_marked(Range range) const;
  void show_but_unshared(Range range) const;
  void hide_pinned() const;
  void mark_granules(Range range);
  Range granule(std::size_t i) const {
    return {range_.begin + i * kGranule, range_.begin + (i + 1) * kGranule};
  }
  Range longest_whole(Range segment) const;
  std::array<ChunkMarks*, 5> all_marks() {
    return {&deprived_, &replaced_, &laid_over_, &unshared_, &withheld_};
  }
  /// Of memory whose block has ended, or that other memory has replaced.
  void forget_wishes(Range range) {
    unshared_.clear(range);
    withheld_.clear(range);
  }

  PageSource& other_;
  Range range_;
  bool beyond_ = false;
  bool aliases_ = false;
  ChunkMarks deprived_;
  ChunkMarks replaced_;   ///< a registration may have other pages
  ChunkMarks laid_over_;  ///< of these, the chunks where the program's mapping still lies
  ChunkMarks unshared_;   ///< by the program
  ChunkMarks withheld_;   ///< of blocks: unmapped by the program
  std::array<std::atomic<bool>, kMostGranules> marked_{};  ///< some chunk of the granule has had a mark
  std::array<std::atomic<bool>, kMostGranules> in_change_{};
  std::array<std::atomic<Address>, kMostGranules> views_{};  ///< the second one of the granule; 0: none
  std::atomic<std::uint64_t> cleared_{0};
  std::atomic<bool> locks_future_{false};
  std::atomic<bool> withholds_{false};
  std::atomic<bool> shown_{false};  ///< not all pinned segments are hidden
  mutable std::mutex mutex_;        ///< guards all that follows, and setting in_change_
  std::array<Segment, kMostGranules> segments_{};
  /// By granule: 1 + the granule at which its segment begins; 0: free.
  std::array<std::uint16_t, kMostGranules> first_{};
  Figures figures_;
  Range of_stack_;  ///< during a fork: the pinned segment with the thread's stack, which the kernel copies
};

/// That of process_heap() (hugepage_heap.h).
Arena& process_arena();

}  // namespace pinion
