#include "retention/settled_regions.h"

#include <algorithm>

namespace pinion {

namespace {
// The longer a buffer has been settled, the later is the next look whether it still is: after that part of
// the time, so late at most.
constexpr Duration kOfSettled = 16;
constexpr Duration kLongestSettled = 250 * kMillisecond;
constexpr std::size_t kMostMarked = 64;
constexpr Duration kRest = Ledger::kLeastPatience;
}  // namespace

void SettledRegions::note(Buffer& buffer, const runlog::Event& lease, RegionRef region, bool may_settle) {
  const bool soon = buffer.reused && lease.outcome == runlog::Outcome::hit &&
                    buffer.region.region == region.region && registered(region) &&
                    lease.begin_ns - buffer.last_use <= ledger_.away(buffer);
  if (lease.thread >= soon_.size()) soon_.resize(lease.thread + std::size_t{1});
  unsigned& in_a_row = soon_[lease.thread];
  in_a_row = soon ? std::min(in_a_row + 1, kRun) : 0;
  const bool settled = in_a_row == kRun && may_settle;
  if (settled && !buffer.settled.by_last_use) buffer.settled.since = lease.begin_ns;
  if (!settled && buffer.settled.by_last_use && registered(buffer.region))
    buffer.region.region->settled_until.store(0, std::memory_order_relaxed);
  buffer.settled.by_last_use = settled;
}

Time SettledRegions::rested_at(RegionRef ref, Time now) const {
  Time rested = kNotYet, since = kNever;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    if (!buffers_[id].settled.by_last_use) continue;
    rested = std::max(rested, buffers_[id].last_use + kRest);
    since = std::min(since, buffers_[id].settled.since);
  }
  if (rested == kNotYet || now < rested) return rested;
  // The uses of a run leave their record when it ends.
  const Ticks used = ref.region->last_use.load(std::memory_order_relaxed);
  if (used <= domain_.clock().ticks_at(now - kRest)) return rested;
  return now + std::clamp((now - since) / kOfSettled, kRest, kLongestSettled);
}

void SettledRegions::mark(RegionRef ref, Time until) {
  Duration gap = kRest;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    if (!buffers_[id].settled.by_last_use) return;
    gap = std::min(gap, ledger_.away(buffers_[id]));
  }
  std::erase_if(marked_, [&](const Marked& other) {
    return !registered(other.region) || other.region.region == ref.region;
  });
  if (marked_.size() >= kMostMarked) return;
  marked_.push_back({ref, until});
  // Threads count on for a while after the look that is due then: it comes late.
  Clock& clock = domain_.clock();
  const Ticks end = clock.ticks_at(until + kRest);
  ref.region->settled_gap.store(end - clock.ticks_at(until + kRest - gap), std::memory_order_relaxed);
  ref.region->settled_until.store(end, std::memory_order_relaxed);
}

std::size_t SettledRegions::bytes(Time now) {
  std::size_t bytes = 0;
  std::erase_if(marked_, [&](const Marked& marked) {
    if (marked.until < now || !registered(marked.region)) return true;
    bytes += marked.region.region->range().bytes();
    return false;
  });
  return bytes;
}

}  // namespace pinion
