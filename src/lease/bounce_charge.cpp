#include "lease/bounce_charge.h"

#include "base/warning.h"
#include "device/model/cost_model.h"
#include "lease/copy_speed.h"
#include "lease/node_membership.h"
#include "runlog/format.h"

namespace pinion {

void BounceCharge::charge(ThreadContext& thread, Record& transfer, const Error& why) {
  if (!reported_.exchange(true))
    warn("%s%s; %s (said once)", why.message, others_text(budget_).c_str(),
         spends_ ? "such transfers take the time of a copy instead"
                 : "the MPI library registers such memory itself, Pinion holds nothing, and the report "
                   "charges the time of a copy");
  const Ticks cost = calibration().to_ticks(copy_time(transfer.bytes, copy_speed()));
  const Ticks begin = ticks_now();
  ThreadCounters& counters = thread.counters[transfer.domain];
  if (spends_) {
    while (ticks_now() - begin < cost) StdAtomics::relax();
    counters.delayed_ticks.add(cost);
    counters.copied_ticks.add(cost);
  } else {
    transfer.flags |= runlog::kCharged;
  }
  counters.bounce_ticks.add(cost);
}

double BounceCharge::copy_speed() {
  double known = bytes_per_ns_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  known = known_copy_speed();
  bytes_per_ns_.store(known, std::memory_order_relaxed);
  return known;
}

}  // namespace pinion
