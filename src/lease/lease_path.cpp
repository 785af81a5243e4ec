#include "lease/lease_path.h"

#include <unistd.h>

namespace pinion {

std::atomic<LeasePath*> LeasePath::running_{nullptr};

LeasePath::LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains,
                     ArenaLeases& arena, MemoryWatch& watch, RunCounters& counters, HelperBell& bell)
    : threshold_(options.threshold),
      acts_below_(options.front == Front::verbs),
      domains_(domains),
      trail_(counters, bell),
      retirement_(domains_, trail_, traits_of(options.retention).decides_on_threads),
      bounce_(spends_modelled_time, domains.budget()),
      arena_(arena),
      closing_(arena, domains_, retirement_),
      steps_(domains_, watch, arena, closing_, trail_, retirement_),
      arena_source_(arena, domains_, watch, steps_, closing_),
      registry_(domains_, watch, trail_, retirement_, bounce_, steps_),
      holds_(domains_, watch, trail_, retirement_, steps_),
      own_(domains, retirement_),
      options_(options),
      process_(::getpid()) {}

HitTrail LeasePath::trail_of_hits(const KeptDomain& kept) const {
  const RetentionTraits traits = traits_of(options_.retention);
  const bool logged = !options_.log.empty() && !log_is_temporary();
  if (kept.observed || traits.predicts || logged) return HitTrail::record;
  return traits.decides_on_threads && traits.keeps_idle ? HitTrail::time : HitTrail::none;
}

void LeasePath::know(const DomainSlot& slot) { domains_.add(slot, trail_of_hits(slot.kept)); }

// One copy for all fronts: its usual ways are free of calls, and need no frame.
void LeasePath::release(ThreadContext& thread, Transfer& transfer) {
  transfer.counted_at != 0 ? closing_.release(thread, transfer) : registry_.release(thread, transfer);
}

void LeasePath::release_after_run(Transfer& transfer) {
  transfer.active = false;
  if (transfer.region() == nullptr || ::getpid() != process_) return;
  if (transfer.counted_at != 0)
    closing_.release_after_run(transfer);
  else
    domains().release_after_run(
        transfer.unrecorded ? transfer.domain : static_cast<int>(transfer.record.domain),
        {transfer.region(), transfer.region()->generation()});
}

}  // namespace pinion
