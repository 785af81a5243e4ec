// Requests within the arena (placement/arena.h): served by the registration of a whole segment, before any
// signature or record is made. A request is a range test, a subtraction, and a count of the thread's own.
//
// Owns the run's registrations of segments, in each domain that had a request there. Each is a permanent
// region (registry/domain.h) under one lease of this object. A segment is registered at its first request,
// as far as the heap uses it then: the rest becomes a segment of its own.
// It is closed when its memory changes, when the heap has given it back, or under a limit: its region is
// doomed, so that requests go the ordinary way. When the leases of requests are back too, this object returns
// its own, and the region goes like any doomed one. A segment is registered once a second at most; under a
// limit, a second after it was closed.
//
// segment_at() is lock-free, for any thread; clears() is for hooks. All else is ordinary code
// of any thread, under one mutex; device calls, hooks and other rooms' locks stay outside of it.
//
// COUNTS. Each thread counts its leases by granule, in plain stores (lease_count.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "lease/domain_table.h"
#include "lease/thread_context.h"
#include "monitor/memory_change.h"
#include "placement/arena.h"
#include "placement/arena_figures.h"
#include "placement/hugepage_heap.h"

namespace pinion {

class ArenaLeases {
 public:
  /// `heap`: whose arena it is. `rights`: of the registrations of segments.
  ArenaLeases(HugepageHeap& heap, Arena& arena, Access rights);

  bool holds(Address address) const { return address - begin_ < bytes_; }
  std::size_t place_of(int domain, Address address) const {
    return arena_place(domain, (address - begin_) >> granule_bits_);
  }

  // ---- requests ----

  /// The region that may serve such requests at this place, and its proof; null: none does.
  [[gnu::always_inline]] Region* segment_at(std::size_t place, Access access, std::uint64_t& proof) const {
    const Service& service = services_[place];
    // A proof is published after its region. So the region is the proof's, or a later one that it does not
    // fit.
    proof = service.proof.load(std::memory_order_acquire);
    Region* const region = service.region.load(std::memory_order_acquire);
    // Local access takes no look at the rights.
    if (!includes(Access::write, access) && !includes(rights_, access)) [[unlikely]]
      return nullptr;
    return region;
  }
  bool is_ordered() const { return ordered_; }

  /// The rights of segments' registrations. With rights of peers, a key opens a whole segment to them.
  Access rights() const { return rights_; }

  // ---- opening ----

  /// The pages to register for the request: a segment, or the part that the program left whole.
  /// finish_opening() must follow. Empty: none. `ahead`: no request needs it yet.
  Range begin_opening(int domain, Range request, bool ahead);
  /// `region` is leased for this object; null: the registration was refused.
  void finish_opening(int domain, Range pages, Region* region);

  // ---- closing; end_closed() must follow ----

  /// A closed segment, or one whose registration was refused, is tried again after this time.
  static constexpr Duration kRest = kSecond;

  /// Closes segments without leases of requests, until they hold so many bytes. They may be opened again
  /// after `rest`. False: there are none.
  bool close_idle(std::uint64_t bytes, Duration rest);
  /// Closes all segments of a domain.
  void close(int domain);
  /// Closes the segment around the pages if it stands in the way of an ordinary request of this domain:
  /// registered with too few rights, or for a part of the pages alone. It is opened there no more.
  void make_way(int domain, Range pages, Access access);

  /// Returns the leases of closed segments whose requests are over, by return_lease(domain, RegionRef), and
  /// lets their memory go once they are deregistered.
  template <class ReturnLease>
  void end_closed(ReturnLease&& return_lease) {
    if (opens_.load(std::memory_order_acquire) == 0) return;
    Ended ended = take_ended();
    for (const Open& open : ended.over) return_lease(open.domain, open.region);
    for (const Range segment : ended.left) arena_.devices().give_back(segment);
  }

  // ---- hooks ----

  struct Met {
    Answer answer = Answer::proceed;
    bool dooms = true;  ///< registrations in the range have pages that the program loses
  };
  /// Meets a change of the arena's memory. Advice that drops pages of an open segment is carried out here,
  /// by writing; memory that the program unmaps or moves stays mapped for the heap.
  Met meet(const MemoryChange& change);
  /// Takes the rights from memory that stays through munmap.
  void withhold(Range range);
  /// Whether one open segment has the range.
  bool is_open(Range range) const;
  /// Bytes of the arena in the range that may be registered.
  std::size_t touched(Range range) const;

  /// Sums of the run so far, over all threads. Ordinary code.
  ArenaFigures figures();

  /// Whether the range is memory of one segment, as the heap made it: no mapping of the program lies over it.
  /// Ordinary code.
  bool is_own(Range range) const;

 private:
  struct alignas(sizeof(LeaseCount)) Service {  // found by the same offset as the count
    std::atomic<std::uint64_t> proof{0};        ///< of the region, while it was open
    std::atomic<Region*> region{nullptr};
    std::atomic<std::uint64_t> closed{0};  ///< number of the segment that began here
    std::atomic<Time> not_before{0};       ///< that segment is opened again
  };
  struct Open {
    int domain;
    Range segment;
    Time since;        ///< it began to be registered
    RegionRef region;  ///< null while it is being registered
    bool ahead = false;
    bool closing = false;
    bool returned = false;  ///< this object's lease
  };
  struct Ended {
    std::vector<Open> over;   ///< their leases are to be returned
    std::vector<Range> left;  ///< segments whose memory may go
  };

  Ended take_ended();
  void return_over(Ended& ended) REQUIRES(mutex_);
  void forget_gone(Ended& ended) REQUIRES(mutex_);
  bool is_closing(const Open& open);
  bool clears(const MemoryChange& change);
  void close(Open& open, Time not_before) REQUIRES(mutex_);
  void rest(const Open& open, Time not_before) REQUIRES(mutex_);
  bool rests(int domain, Range segment);
  std::uint64_t leases_out(const Open& open) const;
  bool is_over(const Open& open) const;
  template <class Visit>
  void for_each_place(const Open& open, Visit&& visit) const;
  void set_regions(const Open& open, Region* region) REQUIRES(mutex_);
  Service& first_service(int domain, Range segment) { return services_[place_of(domain, segment.begin)]; }
  ArenaFigures served_so_far() const;

  HugepageHeap& heap_;
  Arena& arena_;
  const Address begin_;
  const std::size_t bytes_;  ///< 0: there is no arena
  const unsigned granule_bits_;
  const bool ordered_;                         ///< leases are counted by locked instructions
  const Access rights_;                        ///< of registrations
  const std::unique_ptr<Service[]> services_;  ///< by place; null without an arena
  const std::unique_ptr<std::uint64_t[]>
      inherited_;                      ///< by place: leases that ended with the parent; or null
  const ArenaFigures served_before_;   ///< by earlier runs of the process
  std::atomic<std::size_t> opens_{0};  ///< the size of open_
  std::atomic<std::uint64_t> cleared_bytes_{0};
  std::atomic<std::uint64_t> withheld_bytes_{0};

  Mutex mutex_;  ///< guards writing to services_, too
  std::vector<Open> open_ GUARDED_BY(mutex_);
  ArenaFigures figures_ GUARDED_BY(mutex_);  ///< those of segments
};

}  // namespace pinion
