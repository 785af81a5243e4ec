// Requests within the arena (placement/arena.h): served by the registration of a whole segment, before any
// signature or record is made. A request is a range test, a subtraction, and a count of the thread's own.
//
// Owns the run's registrations of segments, in each domain that had a request there. Each is a permanent
// region (registry/domain.h) under one lease of this object. A segment is registered at its first request.
// It is closed when its memory changes, when the heap has given it back, or under a limit: its region is
// doomed, so that requests go the ordinary way. When the leases of requests are back too, this object returns
// its own, and the region goes like any doomed one. A segment is registered once a second at most; under a
// limit, a second after it was closed.
//
// try_lease() and give_back() are lock-free, for any thread; clears() is for hooks. All else is ordinary code
// of any thread, under one mutex; device calls, hooks and other rooms' locks stay outside of it.
//
// COUNTS. Each thread counts leases by granule: +1 for one it takes, -1 for one it returns, also of another
// thread's. Only the sum over threads has a meaning, and only once the segment is closed: from then on it
// falls. Taking counts first and then looks at the region's doom; closing dooms first and then sums. Both are
// sequentially consistent, so at least one of them sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/domain_table.h"
#include "engine/thread_context.h"
#include "monitor/memory_change.h"
#include "placement/arena.h"
#include "placement/arena_figures.h"

namespace pinion {

class ArenaLeases {
 public:
  explicit ArenaLeases(Arena& arena);

  bool holds(Address address) const { return address - begin_ < bytes_; }
  std::size_t granule_of(Address address) const { return (address - begin_) / Arena::kGranule; }

  // ---- requests ----

  /// The region that serves the request, which holds(); counted for the thread. Null: none does.
  Region* try_lease(ThreadContext& thread, int domain, Range request, Access access) {
    const std::size_t granule = granule_of(request.begin);
    std::atomic<Region*>& slot = rows_[domain].regions[granule];
    ArenaCounts* const counts = thread.arena.load(std::memory_order_relaxed);
    Region* const region = slot.load(std::memory_order_acquire);
    if (region == nullptr || counts == nullptr || !includes(kRights, access)) [[unlikely]]
      return nullptr;
    const auto before = region->word.load();
    if (!before.leasable() || !region->range().contains(request)) [[unlikely]]
      return nullptr;
    ArenaCounts::Count& count = counts->leases[domain][granule];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    // Equal again, so the region is the same, and this object returns its lease after ours.
    const auto now = region->word.load_ordered();
    if (now.leasable() && now.generation() == before.generation() &&
        slot.load(std::memory_order_seq_cst) == region) [[likely]]
      return region;
    give_back(thread, domain, granule);
    return nullptr;
  }
  /// By the thread that took it, or another.
  static void give_back(ThreadContext& thread, int domain, std::size_t granule) {
    ArenaCounts::Count& count = thread.arena.load(std::memory_order_relaxed)->leases[domain][granule];
    count.store(count.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  /// Before a thread's first request. False: memory is short.
  static bool prepare(ThreadContext& thread);

  // ---- opening ----

  /// The pages to register for the request: a segment, or the part that the program left whole.
  /// finish_opening() must follow. Empty: none.
  Range begin_opening(int domain, Range request);
  /// `region` is leased for this object; null: the registration was refused.
  void finish_opening(int domain, Range pages, Region* region);

  // ---- closing; settle() must follow ----

  /// Those without leases of requests, until they hold so many bytes: memory is short. False: there are none.
  bool close_idle(std::uint64_t bytes);
  /// All of a domain.
  void close(int domain);
  /// The segment around the pages if it stands in the way of an ordinary request of this domain: registered
  /// with too few rights, or for a part of the pages alone. It is opened there no more.
  void make_way(int domain, Range pages, Access access);

  /// Returns the leases of closed segments whose requests are over, by return_lease(domain, RegionRef), and
  /// lets their memory go once they are deregistered.
  template <class ReturnLease>
  void settle(ReturnLease&& return_lease) {
    if (opens_.load(std::memory_order_acquire) == 0) return;
    Settled settled = settle_table();
    for (const Open& open : settled.over) return_lease(open.domain, open.region);
    for (const Range segment : settled.left) arena_.give_back(segment);
  }

  // ---- hooks ----

  struct Met {
    Answer answer = Answer::proceed;
    bool dooms = true;  ///< registrations in the range have pages that the program loses
  };
  /// How the arena meets a change of memory. Advice that drops pages of an open segment is carried out here,
  /// by writing; memory that the program unmaps or moves stays mapped for the heap.
  Met meet(const MemoryChange& change);
  /// Takes the rights from memory that stays through munmap.
  void withhold(Range range);
  /// Whether one open segment has the range.
  bool is_open(Range range) const;
  /// Of the arena's bytes in the range, those that may be registered.
  std::size_t touched(Range range) const;

  /// Of the run so far, all threads. Ordinary code.
  ArenaFigures figures();

  /// Whether the range is memory of one segment, as the heap made it: no mapping of the program lies over it.
  /// Ordinary code.
  bool is_own(Range range) const;

 private:
  /// Local ones. Remote access would open the whole segment to peers.
  static constexpr Access kRights = Access::write;

  struct Row {
    std::atomic<Region*> regions[Arena::kMostGranules];
    std::atomic<Time> not_before[Arena::kMostGranules];  ///< by the segment's first granule
  };
  struct Open {
    int domain;
    Range segment;
    Time since;        ///< it began to be registered
    RegionRef region;  ///< null while it is being registered
    bool closing = false;
    bool returned = false;  ///< this object's lease
  };
  struct Settled {
    std::vector<Open> over;
    std::vector<Range> left;
  };

  Settled settle_table();
  bool is_closing(const Open& open);
  bool clears(const MemoryChange& change);
  void close(Open& open, Time not_before);
  std::int64_t leases_out(const Open& open) const;
  void set_regions(const Open& open, Region* region);

  Arena& arena_;
  const Address begin_;
  const std::size_t bytes_;            ///< 0: there is no arena
  const std::unique_ptr<Row[]> rows_;  ///< by domain; null without an arena
  std::atomic<std::size_t> opens_{0};  ///< of open_
  std::atomic<std::uint64_t> cleared_bytes_{0};
  std::atomic<std::uint64_t> withheld_bytes_{0};

  std::mutex mutex_;  ///< guards all that follows, and writing to rows_
  std::vector<Open> open_;
  ArenaFigures figures_;  ///< those of segments
};

}  // namespace pinion
