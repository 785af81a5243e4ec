// A domain: a device (with its protection domain) and the registration cache over it. Callers see this class;
// the work is done by its parts:
//   - RegionTable holds the regions and finds them (region_table.h), RegionLeases takes and returns them
//   (region_leases.h)
//   - Admission knows the limits, Eviction the regions that go for them, Widening the range to register
//   - Registering takes the steps of an acquire, Retirement those of the way out
//
// Owns all of them, and the slow lock. Guards:
//   - leases and holds are taken and returned lock-free (lease.h);
//   - everything else is decided under the slow lock, in steps. Device calls and hooks run outside the slow
//     lock; ordinary code may allocate under it;
//   - doom() is for hooks: free of locks, allocations and system calls.
// Steps leave waiting and device calls to their caller. Acquisition (acquisition.h) makes one machine of the
// steps of an acquire, which real threads run by blocking (blocking.h) and the simulator in virtual time.
//
// A permanent region belongs to an owner that hands its memory out itself (an arena). Limits, victims and
// retention leave it alone, and its owner's memory events leave it intact. It serves requests within it.
// Merges and replacements pass it by.
#pragma once

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/range.h"
#include "device/device.h"
#include "monitor/brackets.h"
#include "registry/acquire.h"
#include "registry/admission.h"
#include "registry/budget.h"
#include "registry/domain_context.h"
#include "registry/eviction.h"
#include "registry/region_leases.h"
#include "registry/registering.h"
#include "registry/retirement.h"

namespace pinion {

class Domain : public RegionLeases {
 public:
  Domain(Device& device, Budget& budget, const Brackets& brackets, Clock& clock,
         RegisteredListener* listener);
  /// Begins anew on another device, with the memory that it has. Only while it is empty; hooks, and
  /// threads that look up regions that are gone, may be inside.
  void reopen(Device& device, Budget& budget);
  /// The device behind the domain's is another. Only while it is empty.
  void device_changed();

  // ---- the steps of an acquire, for Acquisition ----

  /// The first step, and the next one after the caller has deregistered or waited.
  AcquireStep begin(Acquire& acquire);
  /// After the device call that `register_` asks for.
  AcquireStep commit(Acquire& acquire, const Registration& registration);
  /// A wait has lasted until `overdue`: the thread that registers ahead has lost its processor. Dooms its
  /// region, so that begin() registers another; the late one is deregistered by its own thread. It is ignored
  /// if the registration is done, or if a limit cannot hold both.
  void overtake(const AcquireAttempt& attempt);
  /// The end of another thread's memory event was waited for until patience ran out: later acquires skip the
  /// wait.
  void waited_in_vain();
  RegistrationTimes& times() { return context_.times; }

  // ---- the way out ----

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
  /// Regions that are claimed for deregistration, by any thread. The budget's departures() change with it.
  std::size_t leaving() const { return retirement_.leaving(); }
  /// Waits until none is, or until then: whoever has claimed one deregisters it.
  void await_leaving(Time until);

  // ---- memory events; hooks ----

  /// Refuses every further lease and hold in `range`. The caller has opened a bracket for it before.
  /// Permanent regions of `owner`, where it is given, stay as they are: it has caused the event. Returns how
  /// many bytes wait to be reaped for it: still pinned, but useless.
  std::size_t doom(Range range, const void* owner = nullptr);

  // ---- limits ----

  /// Whether the limits leave room for these pages at the moment.
  bool has_room(Range pages);
  /// Like has_room(), without the goal for the peak (peak_goal.h).
  bool within_limits(Range pages);
  /// Bytes of `pages` still unregistered.
  std::size_t missing(Range pages);
  /// Lets idle regions go until the budget holds at most so many bytes and regions, as far as there are any;
  /// claimed as by begin_retire().
  std::vector<Region*> begin_shrink(std::uint64_t bytes, std::uint64_t regions = UINT64_MAX);
  /// Lets idle regions go until `pages`, which are needed at `use`, fit; claimed as by begin_retire().
  /// Regions expected before `use` stay; those expected before `back` go only after all others.
  /// Empty: these are too few, or there is room already.
  std::vector<Region*> begin_swap(Range pages, Time use, Time back);
  /// Makes room for so many bytes of another domain of the process: regions expected before `back` stay.
  std::vector<Region*> begin_swap(std::uint64_t bytes, Time back);
  /// Claims the first victim, as begin_retire() does, where more than `keep_bytes` are registered; null: less
  /// is registered, or no region is idle. Any thread, any number of them at a time: regions on their way out
  /// count as gone.
  Region* begin_trim(std::uint64_t keep_bytes);

  // ---- the order of victims ----

  /// Sets when the region is predicted to be used next; 0: not known. For the helper.
  void expect(const RegionRef& ref, Time next_use);
  /// The constant part of a registration's time, in pages that take as long.
  void set_call_pages(double pages);
  /// Makes the least recently used region the first to go from now on (retention lru).
  void choose_least_recently_used();
  /// Memory is short: from now on victims are in order, and each use leaves its time.
  void feel_pressure();
  /// Regions had to go for want of memory. Those that went for the goal for the peak do not count.
  bool has_been_short() const { return table_.has_been_short(); }

  // ---- figures ----

  /// Idle registered regions, except permanent ones, that overlap the range; in order of address.
  std::vector<RegionRef> idle_regions(Range in = {0, ~Address{0}});
  std::size_t registered_bytes() const { return table_.registered_bytes(); }
  std::size_t region_count() const { return table_.count(); }
  /// Memory of the regions and their index. It is used again.
  std::size_t own_bytes();
  /// Most bytes, of whole pages, that the device registers in one region: fronts lease longer ranges in
  /// parts.
  std::size_t most_in_a_region() const { return most_in_a_region_.load(std::memory_order_relaxed); }
  Device& device() { return *context_.device; }
  Budget& budget() { return *context_.budget; }
  Clock& clock() { return context_.clock; }

 private:
  void take_capabilities() REQUIRES(slow_);

  DomainContext context_;
  std::atomic<std::size_t> most_in_a_region_{~std::size_t{0}};

  Mutex slow_;
  Admission admission_ GUARDED_BY(slow_);
  Retirement retirement_;  ///< the slow lock guards it, except leaving() and due()
  Eviction eviction_ GUARDED_BY(slow_);
  Registering registering_ GUARDED_BY(slow_);
};

}  // namespace pinion
