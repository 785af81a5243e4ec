// A domain: a device (with its protection domain) and the registration cache over it.
//
// Owns its regions, their index and the count of registered pages. Guards:
//   - leases and holds are taken and returned lock-free (lease.h);
//   - everything else is decided under the slow lock, in steps: begin -> device -> commit. Device calls and
//     hooks run outside the slow lock; ordinary code may allocate under it;
//   - doom() is for hooks: free of locks, allocations and system calls.
// Steps leave waiting and device calls to their caller, so that the same code runs under real threads
// (registry/blocking.h) and in virtual time.
//
// Regions never contain each other in the index; they may overlap. A miss that overlaps a region by more than
// the page at its edge is merged with it, unless that merge failed before. Buffers that merely touch, or
// share the page at their common edge, stay separate regions: retention decides for each by its own reuse.
//
// In memory of larger pages (hugetlb), which the caller states in the ticket, a registration is of whole such
// pages, and so is a key that peers have. It is of the system's pages where the larger ones exceed a limit,
// where the device has refused them before, and where regions lie in them that have other rights, or that the
// limits leave no room to replace. The larger ones come first: a fork-safe libibverbs that has refused a part
// of a hugepage refuses the whole from then on.
//
// Rights: a region serves requests for its rights and for fewer. Where keys stay private, registrations
// request all rights first, so that one serves later requests for more. Elsewhere a registration has exactly
// the rights of its request, on exactly the memory of requests for these rights. A request for others on the
// same memory replaces it: callers that need several rights in turn should request their sum.
//
// A permanent region belongs to an owner that hands its memory out itself (an arena). Limits, victims and
// retention leave it alone, and its owner's memory events leave it intact. Requests within it are
// served by it. Merges and replacements pass it by.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/access.h"
#include "base/clock.h"
#include "base/coverage.h"
#include "base/error.h"
#include "base/large_pages.h"
#include "base/range.h"
#include "device/device.h"
#include "monitor/brackets.h"
#include "registry/budget.h"
#include "registry/lease.h"
#include "registry/region.h"
#include "registry/slab.h"
#include "registry/victims.h"

namespace pinion {

/// Follows how much a domain has registered; called under the domain's slow lock.
class RegisteredListener {
 public:
  virtual ~RegisteredListener() = default;
  /// Bytes and regions count from `since`, the begin of their device call, which has succeeded by `now`.
  virtual void registered_changed(Time now, Time since, std::int64_t bytes, int regions) = 0;
};

class Domain : public Leases {
 public:
  Domain(Device& device, Budget& budget, const Brackets& brackets, Clock& clock,
         RegisteredListener* listener);
  ~Domain();
  /// Begins anew on another device, with the memory that it has. Only while it is empty; hooks, and
  /// threads that look up regions that are gone, may be inside.
  void reopen(Device& device, Budget& budget);
  /// The device behind the domain's is another. Only while it is empty.
  void device_changed();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // ---- steps ----

  /// The next thing that a caller of begin() or commit() has to do.
  enum class Step {
    leased,  ///< `region` is leased (or, for a ticket without lease, registered): done
    wait,  ///< `region` is being registered by another: wait until its transitions differ from `seen`, begin
           ///< again; at `overdue`, overtake() before that
    deregister,  ///< deregister the `victims`, finish_retire() each, begin again
    register_,   ///< call the device for region->range() with `try_access`, then commit()
    refused,     ///< `error` says why; nothing is held
  };
  struct Ticket {
    Range pages;         ///< whole pages
    LargeRange large{};  ///< the same in whole pages of its memory, where these are larger than the system's
    Access access = Access::read;
    bool lease = true;  ///< false: the helper registers ahead; it neither waits nor evicts
    /// The region is to be permanent: any address that its owner is known by. Just `pages` are registered,
    /// and ordinary regions that contain them, or lie within, are replaced. The owner ends it
    /// (end_permanence) before the domain is closed.
    const void* owner = nullptr;
    Address view = 0;  ///< of permanent memory: its second view (Device::register_view()); 0: it has none
    /// Without lease: the registration takes about so long; 0: not known. A thread that waits for it lets it
    /// take twice that.
    Duration expected = 0;
    // Set by the steps.
    Region* region = nullptr;
    std::uint32_t seen = 0;
    Access try_access = Access::read;  ///< to be asked of the device: at least `access`
    std::vector<Region*> victims;
    Error error;
    bool registered_here = false;  ///< this ticket's own device call made the region
    Range want{};                  ///< pages, their large ones, or the merge with overlapping regions
    bool changed = false;          ///< the memory changed during this ticket's device call
    /// Refused because the memory is changing, in another thread: over as soon as that event is, which is
    /// worth waiting for.
    bool crossed_by_another = false;
    bool unshared = false;   ///< memory events may be missed: the region serves this lease alone
    bool relieved = false;   ///< memory pressure of the device was answered once by letting idle regions go
    Time asked = 0;          ///< when the registration under way began
    Duration preempted = 0;  ///< of its waits, it or the threads that it waited for had lost their core
    Duration rested = 0;     ///< all time of its waits
    Time overdue = kNever;   ///< of a wait: when the registration ahead takes too long
    /// Refused for a limit of the process: idle regions of its other domains may make room.
    bool over_limit = false;
    /// Refused, and regions on their way out make room: begin again when the budget's departures differ.
    bool room_is_coming = false;
    std::uint32_t departures = 0;
    bool as_large = false;  ///< `large` is registered instead of `pages`

    /// The range to register if nothing is merged with it.
    Range alone() const { return as_large ? large.range : pages; }
    /// Takes the next smaller range to register: without the merge, then without the large pages. False:
    /// there is none.
    bool narrow() {
      if (want == pages) return false;
      if (want == alone()) as_large = false;
      want = alone();
      return true;
    }
  };

  Step begin(Ticket& ticket);
  Step commit(Ticket& ticket, const Registration& registration);
  /// A wait has lasted until `overdue`: the thread that registers ahead has lost its processor. Dooms its
  /// region, so that begin() registers another for the ticket; the late one is deregistered by its own
  /// thread. It is ignored where the registration is done, or where a limit has too little room for two.
  void overtake(const Ticket& ticket);
  /// The end of another thread's memory event was waited for until patience ran out: later acquires skip the
  /// wait.
  void waited_in_vain();

  /// How long registrations have taken because the kernel ran something else meanwhile, in all. The loss of a
  /// device call is added before its commit, so that waiting threads find it. Any thread.
  Duration preempted() const { return preempted_.load(std::memory_order_relaxed); }
  void add_preempted(Duration lost) { preempted_.fetch_add(lost, std::memory_order_relaxed); }
  /// When the latest registration or deregistration ended, by the kernel's clock: the threads that wait for
  /// it could go on. Any thread.
  Time transition_ended() const { return transition_ended_.load(std::memory_order_relaxed); }

  /// Claims an idle region (registered, without leases and holds, not permanent, still of that generation)
  /// for deregistration; null otherwise. The caller deregisters region->key and calls finish_retire().
  Region* begin_retire(RegionRef ref);
  void finish_retire(Region* region);
  /// Instead of finish_retire(), when the device refused to deregister the region: it stays counted, and
  /// begin_reap() returns it again after a while.
  void fail_retire(Region* region);
  /// The regions of fail_retire() are due at once.
  void retry_retiring();
  /// The next doomed and unleased region, or one whose deregistration is due to be tried again, claimed as by
  /// begin_retire(); null when there is none.
  Region* begin_reap();
  bool reaping_due() const {
    return !doomed_.empty() || being_reaped_.load(std::memory_order_relaxed) ||
           retry_due_.load(std::memory_order_relaxed) != kNeverRetried;
  }

  // ---- memory events; hooks ----

  /// Refuses every further lease and hold in `range`. The caller has opened a bracket for it before.
  /// Permanent regions of `owner`, where it is given, stay as they are: it has caused the event. Returns how
  /// many bytes wait to be reaped for it: still pinned, but useless.
  std::size_t doom(Range range, const void* owner = nullptr);

  // ---- holders of doomed regions ----

  /// Regions that were doomed under leases or holds since the last call, as far as they are still in use:
  /// their holders should let go, as the memory stays pinned until the last one has. One caller at a time,
  /// outside of hooks.
  std::vector<RegionRef> take_recalls();
  /// A permanent region becomes an ordinary one.
  void end_permanence(const RegionRef& ref);

  // ---- helpers of retention ----

  /// Idle registered regions, except permanent ones; at most `most`, in order of address.
  std::vector<RegionRef> idle_regions(std::size_t most = SIZE_MAX);
  bool covered(Range pages);
  /// When the region is predicted to be used next; 0: not known. For the helper.
  void expect(const RegionRef& ref, Time next_use);
  /// Memory has been short, so that expectations matter.
  bool pressed() const { return pressed_.load(std::memory_order_relaxed); }
  /// The constant part of a registration's time, in pages that take as long, for the choice of victims.
  void set_call_pages(double pages);
  /// Lets idle regions go until the budget holds at most so many bytes and regions, as far as there are any;
  /// claimed as by begin_retire().
  std::vector<Region*> begin_shrink(std::uint64_t bytes, std::uint64_t regions = UINT64_MAX);
  /// Whether the limits leave room for these pages at the moment.
  bool has_room(Range pages);
  /// Lets idle regions go until `pages`, which are needed at `use`, fit; claimed as by begin_retire().
  /// Regions expected before `use` stay; those expected before `back` go only after all others.
  /// Empty: these are too few, or there is room already.
  std::vector<Region*> begin_swap(Range pages, Time use, Time back);
  /// The same for so many bytes of another domain of the process: regions expected before `until` stay.
  std::vector<Region*> begin_swap(std::uint64_t bytes, Time back);
  /// Bytes of `pages` still unregistered.
  std::size_t missing(Range pages);
  std::size_t registered_bytes() const { return registered_bytes_.load(std::memory_order_relaxed); }
  std::size_t region_count() const { return region_count_.load(std::memory_order_relaxed); }
  /// Of them, those that are claimed for deregistration, by any thread. The budget's departures() change with
  /// it.
  std::size_t leaving() const { return leaving_.load(std::memory_order_acquire); }
  /// Memory of the regions and their index. It is used again.
  std::size_t own_bytes();
  Device& device() { return *device_; }
  Budget& budget() { return *budget_; }
  /// Most bytes, of whole pages, that the device registers in one region: fronts lease longer ranges in
  /// parts.
  std::size_t most_in_a_region() const { return most_in_a_region_.load(std::memory_order_relaxed); }
  Clock& clock() { return clock_; }

  /// From now on the least recently used region is the first to go (retention lru).
  void choose_least_recently_used();
  /// Claims the least recently used idle region, as begin_retire() does, where more than `keep_bytes` are
  /// registered; null: less is registered, or no region is idle. Any thread, any number of them at a time:
  /// regions on their way out count as gone.
  Region* begin_trim(std::uint64_t keep_bytes);

 private:
  /// The registered region that serves the ticket, or else the one being registered that will contain its
  /// pages.
  Region* candidate_for(const Ticket& ticket);
  /// The ticket's pages, large or not, with the regions that they overlap.
  Range merged(const Ticket& ticket) const;
  /// Whether the ticket's large pages are to be registered.
  bool may_be_large(const Ticket& ticket) const;
  /// Regions of unequal rights in one large page would replace each other at each use.
  bool meets_other_rights(const Ticket& ticket) const;
  /// Regions within the range would go for it, and it may find no room after all.
  bool would_replace_in_vain(Range large) const;
  bool merge_failed_before(Range want) const;
  void remember_failed_merge(Range want);
  bool within_device_caps(Range want, Error& error) const;
  /// Whether the device takes one more region for `want`, once `gone` have been deregistered.
  bool device_has_room(Range want, const std::vector<Region*>& gone = {}) const;
  void take_capabilities(const Device& device);
  /// Takes every region that `want` contains, or that contains `want` (and did not serve), out of the index;
  /// the idle ones become victims.
  void replace_nested(Range want, std::vector<Region*>& victims);
  /// Whether replace_nested() would meet a permanent region.
  bool meets_permanent(Range want) const;
  /// Claims idle regions (chosen by Victims) until `want` fits the budget. False, with nothing claimed, when
  /// all idle regions together are too few.
  bool make_room(Range want, std::vector<Region*>& victims);
  /// Whether `bytes` in a region more fit when all regions have gone that are on their way out, or idle.
  bool room_is_coming(std::size_t bytes);
  /// Claims idle regions without an expected use by `not_before`, until `fits` holds without them. If it
  /// never holds, no region is claimed.
  template <class Fits>
  void claim_until(Fits&& fits, Time not_before, std::vector<Region*>& victims);
  /// Whether the limits leave room for `want`, beside `others` bytes of the other domains, once `gone`, which
  /// coverage_ leaves out already, are deregistered.
  bool fits(Range want, std::uint64_t others, const std::vector<Region*>& gone) const;
  std::uint64_t held_by_others() const { return budget_->bytes() - coverage_.bytes(); }
  static constexpr Time kAnyTime = INT64_MIN;
  /// Claims idle regions of at least so many bytes, as far as there are any.
  void evict(std::uint64_t bytes, std::vector<Region*>& victims);
  /// Claims a region that Victims gave; false (and it is back there): in use since.
  bool claim_victim(Region* region, std::vector<Region*>& victims);
  /// From the first time that memory is short, the order of victims is kept.
  void feel_pressure();
  Error limit_error(std::size_t needed) const;
  Error device_limit_error(std::size_t needed) const;
  void unindex(Region* region);
  /// The region is claimed for deregistration; that is over.
  void leaves(Region* region);
  void left(Range pages);
  /// Counts pages that are registered now.
  void count_registered(Range pages, Time since);
  /// Gives back begin()'s reservation for pages that are unregistered (again), perhaps because the device was
  /// full (`refusal`).
  void unreserve(Range pages, const Error& refusal = {});
  void end_transition(Region* region);
  /// The slot is free for the next region, unless its generations are used up.
  void put_slot(Region* region);
  /// Puts a region that was doomed in use on the list of recalls. Hooks too.
  void recall(Region* region);

  Device* device_;
  Budget* budget_;
  const Brackets& brackets_;
  Clock& clock_;
  RegisteredListener* const listener_;

  RegionStack<Region, &Region::next_recalled> recalls_;
  std::atomic<Region*> being_reaped_{nullptr};  ///< taken off doomed_; written under the slow lock
  std::atomic<std::size_t> registered_bytes_{0};
  std::atomic<std::size_t> region_count_{0};
  std::atomic<std::size_t> leaving_{0};

  std::atomic<std::size_t> most_in_a_region_{~std::size_t{0}};

  std::mutex slow_;  // guards all that follows, and writing to the index
  Slab<Region> slab_;
  DeviceCaps caps_;            ///< of the device, as it was opened
  bool exact_rights_ = false;  ///< peers can get a key of the device
  Coverage coverage_;          ///< reserved: registered or about to be
  /// The same as the sum over regions, as devices count it.
  std::size_t region_bytes_ = 0;
  Coverage registered_;  ///< registered by device calls that succeeded
  static constexpr Time kNeverRetried = INT64_MAX;
  std::vector<Region*> unretired_;  ///< claimed; their deregistration has failed
  std::atomic<Time> retry_due_{kNeverRetried};
  Duration retry_wait_ = 0;
  std::vector<Range> failed_merges_;
  std::size_t next_failed_merge_ = 0;
  std::atomic<Duration> preempted_{0};
  std::atomic<Time> transition_ended_{0};
  bool waited_in_vain_ = false;  ///< and no range has been met since that does not change
  std::size_t trimming_ = 0;     ///< bytes of the regions that begin_trim() has claimed
  Victims victims_;              ///< holds every ordinary region from the first pressure on (pressed_)
};

}  // namespace pinion
