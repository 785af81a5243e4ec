// The regions of a domain: the index that finds them, the slab that gives their slots, the order in which
// they would go, and how much they cover.
//
// Regions never contain each other in the index; they may overlap. The table counts twice: what is reserved
// (registered, or about to be) against the limits, and what is registered in fact, for the figures. Both
// count the union of pages.
//
// Any thread, hooks included, looks regions up without a lock. All else is guarded by the domain's slow lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/coverage.h"
#include "registry/recent_regions.h"
#include "registry/region.h"
#include "registry/region_index.h"
#include "registry/shared_hints.h"
#include "registry/slab.h"
#include "registry/victims.h"

namespace pinion {

class RegionTable {
 public:
  RegionTable() : number_(next_number()) {}

  // ---- any thread, hooks included ----

  /// The table's number in hints (recent_regions.h).
  std::uint64_t number() const { return number_; }
  /// True once regions had to go for others: the order of victims is kept.
  bool pressed() const { return pressed_.load(std::memory_order_relaxed); }
  /// Regions had to go, and not for the goal for the peak alone.
  bool has_been_short() const { return has_been_short_.load(std::memory_order_relaxed); }
  /// The region with the greatest begin <= a, or null. Best effort (region_index.h).
  Region* find(Address a) const { return index_.find(a); }
  /// A region for a request that begins at `begin`, maybe; or null. Outside of hooks (shared_hints.h).
  Region* find_hint(Address begin) const { return hints_.find(begin); }
  /// A request that begins at `begin` was served by `region`. Outside of hooks.
  void remember(Address begin, Region* region) { hints_.remember(begin, region); }
  /// Calls f(Region*) for every region of the index that overlaps `range`.
  template <class F>
  void for_each_overlap(Range range, F&& f) const {
    index_.for_each_overlap(range, f);
  }
  std::size_t registered_bytes() const { return registered_bytes_.load(std::memory_order_relaxed); }
  /// Regions that are registered, or about to be.
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }

  // ---- under the slow lock: a region's way ----

  /// Allocates ahead for one region. False: the system has no memory.
  bool reserve();
  /// After reserve(): a region for `range` that begins to be registered, with `leases` leases. Lookups do not
  /// find it before insert().
  Region* take(Range range, std::uint32_t leases);
  /// Lets lookups find the region, whose fields are set; its pages count as reserved.
  void insert(Region* region, Ticks now);
  /// Takes the region out of lookups and of the order of victims, if it is there.
  void hide(Region* region);
  /// Counts pages that are registered now; returns the bytes by which the union grew.
  std::size_t count_registered(Range pages);
  /// Counts pages that are deregistered; returns the bytes that left the union.
  std::size_t count_deregistered(Range pages);
  /// Ends the reservation of a region's pages; returns the bytes that left the union.
  std::size_t unreserve(Range pages);
  /// Lets the slot of a free region be taken again, unless its generations are used up.
  void put(Region* region);

  // ---- under the slow lock: looks ----

  /// Calls f for all regions of the index in order, until it returns false.
  template <class F>
  void for_each(F&& f) const {
    index_.for_each(f);
  }
  /// Bytes of the union of reserved pages.
  std::size_t reserved_bytes() const { return pages_.bytes<kReserved>(); }
  /// Bytes of `pages` that no region reserves.
  std::size_t unreserved(Range pages) const { return pages_.would_add<kReserved>(pages); }
  /// For a calculation that takes pages out of the union for the time being.
  void take_out(Range pages) { pages_.remove<kReserved>(pages); }
  void put_back(Range pages) { pages_.add<kReserved>(pages); }
  /// The sum of the reserved regions' bytes, as devices count.
  std::size_t region_bytes() const { return region_bytes_; }
  /// The order of victims, complete after feel_pressure() alone.
  Victims& victims() { return victims_; }
  /// Starts the order of victims when the first region has to go for others.
  void feel_pressure();
  void note_shortage() { has_been_short_.store(true, std::memory_order_relaxed); }
  /// Begins anew with an empty table.
  void restart();
  /// Memory of the regions, their index and the hints. It is used again.
  std::size_t own_bytes() const { return slab_.bytes() + index_.bytes() + hints_.bytes(); }

 private:
  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> next{0};
    return next.fetch_add(1, std::memory_order_relaxed) % RegionHint::kDomains;
  }

  // A line that is read at each use and written hardly ever; the index is written at each registration.
  alignas(64) const std::uint64_t number_;
  std::atomic<bool> pressed_{false}, has_been_short_{false};
  BasicSharedHints<Region> hints_;
  alignas(64) BasicRegionIndex<Region> index_;
  std::atomic<std::size_t> registered_bytes_{0};
  std::atomic<std::size_t> count_{0};

  // Guarded by the slow lock, as is writing to all of the above.
  Slab<Region> slab_;
  enum Union : std::size_t { kReserved, kRegistered };
  Coverages<2> pages_;
  std::size_t region_bytes_ = 0;
  Victims victims_;  ///< holds every ordinary region of the index once memory has been short
};

}  // namespace pinion
