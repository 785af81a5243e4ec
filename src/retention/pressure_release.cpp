#include "retention/pressure_release.h"

#include <algorithm>

namespace pinion {

void PressureRelease::see(bool is_short) {
  if (!is_short) released_ = false;
  short_ = is_short;
  looked_ = false;
  idle_.clear();
}

bool PressureRelease::Idle::is_kept_longer(const Idle& other) const {
  if ((next_use == 0) != (other.next_use == 0)) return next_use != 0;
  return next_use != 0 ? next_use < other.next_use : last_use > other.last_use;
}

void PressureRelease::find_idle(std::span<KeptDomain* const> domains, const Calibration& scale, Time now) {
  for (KeptDomain* in : domains) {
    if (in->observed || !in->domain->device().capabilities().pins) continue;
    // Hits are timed from now on: the next look knows which regions are in use.
    if (in->untimed_hits && !in->domain->pressed()) {
      in->domain->feel_pressure();
      continue;
    }
    for (const RegionRef& ref : in->domain->idle_regions()) {
      const Time last_use = scale.to_time(ref.region->last_use.load(std::memory_order_relaxed));
      if (now - last_use < kRest || ref.region->settled.load(std::memory_order_relaxed)) continue;
      idle_.push_back({in, ref, ref.region->next_use.load(std::memory_order_relaxed), last_use});
    }
  }
  std::stable_sort(idle_.begin(), idle_.end(),
                   [](const Idle& a, const Idle& b) { return a.is_kept_longer(b); });
}

std::pair<KeptDomain*, Region*> PressureRelease::next(std::span<KeptDomain* const> domains,
                                                      const Calibration& scale, Time now) {
  if (!short_) return {};
  if (!std::exchange(looked_, true)) find_idle(domains, scale, now);
  while (!idle_.empty()) {
    const Idle first = idle_.back();
    idle_.pop_back();
    Region* const region = first.in->domain->begin_retire(first.ref);
    if (region == nullptr) continue;  // used, or gone, since
    bytes_ += region->range().bytes();
    times_ += !std::exchange(released_, true);
    return {first.in, region};
  }
  return {};
}

void PressureRelease::add_to(runlog::Counters& counters) const {
  counters.pressure_released_bytes = bytes_;
  counters.pressure_releases = times_;
}

}  // namespace pinion
