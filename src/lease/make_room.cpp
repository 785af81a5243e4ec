#include "lease/make_room.h"

#include "registry/acquisition.h"

namespace pinion {

bool make_room(LeasePath& leases, ThreadContext& thread) {
  Budget& budget = leases.budget();
  if (budget.bytes() == 0) return false;
  leases.counted_closing().let_go(thread, UINT64_MAX, ArenaLeases::kRest);
  leases.retirement().let_idle_go(thread);
  const Time patience = monotonic_now() + kRoomPatience;
  while (monotonic_now() < patience) {
    const std::uint32_t departures = budget.departures().load();
    if (budget.leaving_regions() == 0) break;
    budget.departures().wait(departures, patience);
  }
  return true;
}

}  // namespace pinion
