#include "lease/own_registrations.h"

#include "base/held_signals.h"
#include "registry/acquisition.h"

namespace pinion {

void OwnRegistrations::begin(ThreadContext& thread, std::uint64_t bytes) {
  HeldSignals held;
  Budget& budget = domains_.budget();
  const Time patience = monotonic_now() + kRoomPatience;
  while (monotonic_now() < patience) {
    const std::uint32_t departures = budget.departures().load();
    if (budget.reserve(bytes, RealClock().now())) return;
    if (retirement_.retire_for(thread, bytes)) continue;
    if (budget.leaving_regions() == 0) break;
    held.rest([&] { budget.departures().wait(departures, patience); });
  }
  budget.exceed(bytes, RealClock().now());
}

void OwnRegistrations::end(std::uint64_t bytes) {
  const HeldSignals held;
  domains_.budget().release(bytes, RealClock().now());
}

}  // namespace pinion
