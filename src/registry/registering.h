// The steps of an acquire that the slow lock guards: begin() finds a region that serves, or places a new one
// in the table, so that memory events and other threads meet it; the caller calls the device; commit() makes
// the region leasable, or takes it away again. Guarded by the domain's slow lock, except where the table's
// readers look in.
//
//   begin ──> leased                     commit ──> leased
//        ├──> await_region, busy               ├──> register_   (fewer rights)
//        ├──> deregister  (victims)            ├──> deregister  (doomed meanwhile, narrower, or victims)
//        ├──> register_                        └──> refused
//        └──> refused, await_departure, await_event
//
// Rights: a region serves requests for its rights and for fewer. Where keys stay private, registrations
// request all rights first, so that one serves later requests for more. Elsewhere a registration has exactly
// the rights of its request, on exactly the memory of requests for these rights. A request for others on the
// same memory replaces it: callers that need several rights in turn should request their sum.
//
// Children: where a device hides memory from them, a region has the pages of its request and serves no
// others. A permanent region, and one of large pages, serves parts: their callers make copies for children.
//
// Byte ranges: a registration overlaps no other one at any time. Idle regions that it would overlap go first.
// A request that overlaps a region in use, or on its way out, is refused with EBUSY.
#pragma once

#include <optional>
#include <vector>

#include "registry/acquire.h"
#include "registry/admission.h"
#include "registry/eviction.h"
#include "registry/region_leases.h"
#include "registry/retirement.h"
#include "registry/widening.h"

namespace pinion {

class Registering {
 public:
  Registering(DomainContext& context, RegionLeases& leases, RegionTable& table, DoomedRegions& doomed,
              Admission& admission, Retirement& retirement, Eviction& eviction)
      : context_(context),
        leases_(leases),
        table_(table),
        doomed_(doomed),
        admission_(admission),
        retirement_(retirement),
        eviction_(eviction),
        widening_(table, admission) {}

  AcquireStep begin(Acquire& acquire);
  AcquireStep commit(Acquire& acquire, const Registration& registration);
  /// Domain::overtake().
  void overtake(const AcquireAttempt& attempt);
  /// Domain::waited_in_vain().
  void waited_in_vain() { waited_in_vain_ = true; }
  /// Begins anew with an empty domain.
  void restart();

 private:
  using Look = decltype(Brackets::sight)::Look;

  /// Uses a region that serves, or is about to; empty: there is none.
  std::optional<AcquireStep> use_existing(Acquire& acquire);
  /// The registered region that serves the request, or else the one being registered that will contain its
  /// pages.
  Region* candidate_for(const AcquireRequest& request) const;
  /// Stops at memory that is changing, or has changed since its use was predicted; empty: it has not.
  std::optional<AcquireStep> stop_at_change(Acquire& acquire);
  /// Chooses the range to register; empty: it may be registered.
  std::optional<AcquireStep> choose_range(Acquire& acquire, bool alone);
  /// Reserves the range, after its nested regions have gone, or less where it does not fit; empty: it is
  /// reserved.
  std::optional<AcquireStep> reserve(Acquire& acquire);
  /// Refuses the request's own pages, which exceed a limit, unless room is coming.
  AcquireStep refuse_for_limit(Acquire& acquire, bool by_device, std::size_t bytes) const;
  /// Takes every region that `want` contains, or that contains `want` (and did not serve), out of the table;
  /// the idle ones become victims.
  void replace_nested(Range want, std::vector<Region*>& victims);
  /// Lets all regions go that a registration of bytes would overlap; empty: nothing is in its way.
  std::optional<AcquireStep> clear_overlaps(Acquire& acquire);
  /// Whether replace_nested() would meet a permanent region.
  bool meets_permanent(Range want) const;
  /// Places a region for the reserved range in the table.
  void place(Acquire& acquire, const Look& sight);
  AcquireStep finish_registered(Acquire& acquire, const Registration& registration);
  AcquireStep finish_refused(Acquire& acquire, const Error& refusal);
  /// Ends the region's registration: threads that wait for it go on.
  void end_transition(Region* region);

  DomainContext& context_;
  RegionLeases& leases_;
  RegionTable& table_;
  DoomedRegions& doomed_;
  Admission& admission_;
  Retirement& retirement_;
  Eviction& eviction_;
  Widening widening_;
  bool waited_in_vain_ = false;  ///< and no range has been met since that does not change
};

}  // namespace pinion
