#include "retention/shortage.h"

#include <algorithm>
#include <cstdlib>

namespace pinion {

namespace {

/// The time it takes to have a region of so many entries back in place of another one.
Duration swap_time(const CostEstimates& costs, std::size_t pages) {
  const std::size_t entries = costs.entries_a_page.of(pages);
  return costs.deregistration.upper(entries) + costs.registration.upper(entries) + costs.wake.value();
}

}  // namespace

// ---- swaps ----

bool Swap::take_up(KeptDomain& in, const Retention::Action& refused, Time now) {
  if (refused.kind != Retention::Action::Kind::register_ahead) return false;
  if (in.domain->has_room(refused.pages)) return false;
  std::erase_if(waiting_, [&](const Waiting& other) {
    return other.in == &in && other.action.buffer == refused.buffer;
  });
  const auto place = std::partition_point(
      waiting_.begin(), waiting_.end(), [&](const Waiting& other) { return other.action.use > refused.use; });
  waiting_.insert(place, {&in, refused, retry_at(in, refused, now)});
  if (waiting_.size() > kMost) waiting_.erase(waiting_.begin());
  return true;
}

Time Swap::retry_at(const KeptDomain& in, const Retention::Action& action, Time now) {
  // Transfers that end leave room. It matters the more, the less time is left for a swap; overdue, the less
  // the longer.
  const Duration swap = swap_time(in.costs, action.pages.pages());
  return now + std::max({std::abs(action.use - now - swap) / 4, swap / 8, kLeastWait});
}

Swap::Turn Swap::next(std::span<KeptDomain* const> domains, Time now, bool may_begin) {
  // A use that is overdue is still to come: where the program stalls, all are. But not for ever.
  std::erase_if(waiting_, [now](const Waiting& waiting) {
    return now > waiting.in->retention->waits_until(waiting.action);
  });
  for (auto at = waiting_.rbegin(); may_begin && claimed_.empty() && at != waiting_.rend(); ++at) {
    if (now >= at->retry || at->in->domain->has_room(at->action.pages)) {
      const Turn turn{at->in, at->action};
      waiting_.erase(std::next(at).base());
      makes_room_ = 0;
      return turn;
    }
    claim(*at, domains);
    if (!claimed_.empty()) makes_room_ = at->action.pages.bytes();
  }
  if (claimed_.empty()) {
    makes_room_ = 0;
    return {};
  }
  const Turn turn = claimed_.back();
  claimed_.pop_back();
  return turn;
}

void Swap::claim(const Waiting& waiting, std::span<KeptDomain* const> domains) {
  const Range pages = waiting.action.pages;
  // Predicted uses compare among each other instead of with now: where the program stalls, all are overdue
  // alike.
  const Time use = waiting.action.use;
  const Time back = use + swap_time(waiting.in->costs, pages.pages());
  claimed(*waiting.in, waiting.in->domain->begin_swap(pages, use, back));
  for (KeptDomain* other : domains) {
    if (!claimed_.empty()) return;
    if (other != waiting.in)
      claimed(*other, other->domain->begin_swap(waiting.in->domain->missing(pages), back));
  }
}

void Swap::claimed(KeptDomain& in, const std::vector<Region*>& regions) {
  for (Region* region : regions) {
    Retention::Action action = Retention::deregistration(region);
    action.entries = region->entries.load(std::memory_order_relaxed);
    action.after = in.domain->clock().now();
    claimed_.emplace_back(&in, action);
  }
}

Time Swap::next_deadline() const {
  Time first = kNever;
  for (const Waiting& waiting : waiting_) first = std::min(first, waiting.retry);
  return first;
}

// ---- memory is short ----

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
