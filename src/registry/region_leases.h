// The lock-free part of a domain: taking and returning leases and holds. Any thread may call it, except in
// hooks. It is free of locks, allocations and system calls.
//
// A hit is: hint of the thread -> one compare -> one locked instruction -> decision. The hint carries range,
// rights, domain and generation of the region that served the last request of that address
// (recent_regions.h). The locked instruction counts the lease in the region's word and returns the word
// before. That word decides: the hint's generation, registered, not doomed. Generations never wrap, so an
// equal generation is the same region, and the range and rights in the hint are its own. Of the region only
// its word is read.
//
// Without a hint of the thread, those that all threads share (shared_hints.h) or the index give a candidate.
// Its word is read, then its range and rights, then the lease is counted; an equal generation shows that all
// of them are of the same region.
#pragma once

#include <atomic>

#include "base/access.h"
#include "base/range.h"
#include "registry/doomed_regions.h"
#include "registry/recent_regions.h"
#include "registry/region.h"
#include "registry/region_table.h"

namespace pinion {

class RegionLeases {
 public:
  using Released = RegionWord::Released;

  /// A lease on a registered region that contains `request` with at least `access`, or null.
  Region* try_hit(Range request, Access access, RecentRegions& recent) {
    const RegionHint& hint = recent.of(request.begin);
    if (is_hinted(hint, request, access) && take_hinted(hint)) [[likely]]
      return hint.region;
    return hit_by_index(request, access, recent);
  }
  /// Whether the thread's hint names a region for the request: it may be gone, or have been replaced.
  bool is_hinted(const RegionHint& hint, Range request, Access access) const {
    return hint.serves(request, table_.number(), access);
  }
  /// A lease on the hint's region, if that is still there.
  bool take_hinted(const RegionHint& hint) {
    if (hint.region->word.count_in(hint.proof)) [[likely]]
      return true;
    refuse(hint.region);
    return false;
  }

  /// A request from `begin` on was served by `region`, which is under lease. A hint serves shorter requests
  /// too.
  void remember(RecentRegions& recent, Address begin, Region* region) const {
    if (!region->serves_parts.load(std::memory_order_relaxed)) return;
    recent.remember({begin, region->end.load(std::memory_order_relaxed),
                     region->word.load().proof() |
                         RegionHint::marks(table_.number(), region->access.load(std::memory_order_relaxed)),
                     region});
  }

  /// Returns a lease that lasted from `begin` to `end`. `idle`: it was the last use (retention may retire the
  /// region now). A doomed region is put on the list for reaping here.
  Released release(Region* region, Ticks begin, Ticks end) {
    // Victims are chosen by these once memory is short. They cannot come from records: where the
    // helper only keeps the log (lru, leave-pinned) it looks when a ring is three quarters full, 192 uses
    // late.
    if (table_.pressed()) [[unlikely]]
      region->used(begin, end);
    else
      region->last_use.store(end, std::memory_order_relaxed);
    return release(region);
  }
  /// For a caller who returned a lease by the word itself, and left the region doomed and idle.
  void left_doomed(Region* region) { doomed_.add(region); }
  /// Notes that a use ends now; for leaseholders.
  void used(Region* region, Ticks now) {
    table_.pressed() ? region->used(now, now) : region->last_use.store(now, std::memory_order_relaxed);
  }
  /// Regions had to go for others, so that uses and expectations matter.
  bool pressed() const { return table_.pressed(); }
  /// Returns a lease, and leaves no trace of its use.
  Released release(Region* region) { return returned(region, region->word.release()); }

  /// Whether the device registers ranges of bytes, instead of whole pages.
  bool registers_bytes() const { return registers_bytes_.load(std::memory_order_relaxed); }
  /// The range that a registration for the request is made for: its pages, or its bytes.
  Range unit_of(Range request) const { return registers_bytes() ? request : request.to_pages(); }

  // ---- peers ----

  /// A hold for a peer that may use the region remotely: it stays registered until end_hold(). False: the
  /// region is gone, doomed, or takes no further hold.
  bool begin_hold(const RegionRef& ref) { return ref.region && ref.region->word.begin_hold(ref.generation); }
  Released end_hold(Region* region) { return returned(region, region->word.end_hold()); }

  // ---- for the domain's steps ----

  /// A lease on `candidate`, a region of the table, if it serves; or null.
  Region* lease(Region* candidate, Range request, Access access) {
    if (!candidate) return nullptr;
    const auto word = candidate->word.load();
    if (!word.leasable() || !candidate->serves(request, access)) return nullptr;
    if (candidate->word.count_in(word.proof())) [[likely]]
      return candidate;
    release(candidate);
    return nullptr;
  }

 protected:
  RegionLeases() = default;

  RegionTable table_;  ///< what each use reads of it comes first
  DoomedRegions doomed_;
  std::atomic<bool> registers_bytes_{false};  ///< changes while the domain is empty

 private:
  // Out of line, as a hit is to be short wherever it is inlined.
  [[gnu::noinline]] Region* hit_by_index(Range request, Access access, RecentRegions& recent) {
    Region* region = lease(table_.find_hint(request.begin), request, access);
    if (!region) {
      region = lease(table_.find(request.begin), request, access);
      if (!region) return nullptr;
      table_.remember(request.begin, region);
    }
    remember(recent, request.begin, region);
    return region;
  }
  /// The region was counted in vain.
  [[gnu::noinline, gnu::cold]] void refuse(Region* region) { release(region); }
  Released returned(Region* region, Released released) {
    if (released == Released::idle_doomed) [[unlikely]]
      doomed_.add(region);
    return released;
  }
};

}  // namespace pinion
