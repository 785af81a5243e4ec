// Segments of the arena (placement/arena.h): requests in one are served by its registration, before any
// signature or record is made. A segment is registered at its first request, as far as the heap uses it then:
// the rest becomes a segment of its own. It is a permanent region (registry/domain.h), whose leases threads
// count for themselves (counted_leases.h).
//
// Owns which segments are registered, in each domain that had a request there, and the way from an address to
// its segment's region. A segment is closed when its memory changes, when the heap has given it back, or
// under a limit: its region is doomed, so that requests go the ordinary way, and goes like any doomed one. A
// segment is registered once a second at most; under a limit, a second after it was closed.
//
// segment_at() is lock-free, for any thread; meet(), withhold() and is_open() are for hooks. All else is
// ordinary code of any thread, under one mutex; device calls, hooks and other rooms' locks stay outside of
// it.
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

  bool exists() const { return bytes_ != 0; }
  bool holds(Address address) const { return address - begin_ < bytes_; }

  // ---- requests ----

  /// The region that may serve such a request, whose address holds(), and its proof; null: none does.
  [[gnu::always_inline]] Region* segment_at(int domain, Address address, Access access,
                                            std::uint64_t& proof) const {
    const Service& service = service_at(domain, address);
    // A proof is published after its region. So the region is the proof's, or a later one that it does not
    // fit.
    proof = service.proof.load(std::memory_order_acquire);
    // Local access takes no look at the rights.
    if (!includes(Access::write, access) && !includes(rights_, access)) [[unlikely]]
      return nullptr;
    return service.region.load(std::memory_order_acquire);
  }

  /// The rights of segments' registrations. With rights of peers, a key opens a whole segment to them.
  Access rights() const { return rights_; }

  // ---- opening ----

  /// The pages to register for the request: a segment, or the part that the program left whole.
  /// finish_opening() must follow. Empty: none. `ahead`: no request needs it yet.
  Range begin_opening(int domain, Range request, bool ahead);
  /// `region` has a place of counts; null: the registration was refused.
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

  /// Closes the segments whose memory has changed, or that the heap has given back, and lets the memory of
  /// those go that are deregistered.
  void end_closed();

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
  /// Sums of the run so far, over all threads. Ordinary code.
  ArenaFigures figures();

  /// Whether the range is memory of one segment, as the heap made it: no mapping of the program lies over it.
  /// Ordinary code.
  bool is_own(Range range) const;

 private:
  struct Service {
    std::atomic<std::uint64_t> proof{0};  ///< of the region, while it was open
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
    bool refused = false;
  };

  std::vector<Range> forget_gone() REQUIRES(mutex_);
  bool is_closing(const Open& open);
  bool clears(const MemoryChange& change);
  void close(Open& open, Time not_before) REQUIRES(mutex_);
  void rest(const Open& open, Time not_before) REQUIRES(mutex_);
  bool rests(int domain, Range segment);
  void set_regions(const Open& open, Region* region) REQUIRES(mutex_);
  /// Of the granule at the address, in the domain.
  Service& service_at(int domain, Address address) const {
    return services_[static_cast<std::size_t>(domain) * Granules::kMost +
                     ((address - begin_) >> granule_bits_)];
  }
  static ArenaFigures served_so_far();

  HugepageHeap& heap_;
  Arena& arena_;
  const Address begin_;
  const std::size_t bytes_;  ///< 0: there is no arena
  const unsigned granule_bits_;
  const Access rights_;                        ///< of registrations
  const std::unique_ptr<Service[]> services_;  ///< of each granule in each domain; null without an arena
  const ArenaFigures served_before_;           ///< by earlier runs of the process
  std::atomic<std::size_t> opens_{0};          ///< the size of open_
  std::atomic<std::uint64_t> cleared_bytes_{0};
  std::atomic<std::uint64_t> withheld_bytes_{0};

  Mutex mutex_;  ///< guards writing to services_, too
  std::vector<Open> open_ GUARDED_BY(mutex_);
  ArenaFigures figures_ GUARDED_BY(mutex_);  ///< those of segments
};

}  // namespace pinion
