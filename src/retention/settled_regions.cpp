#include "retention/settled_regions.h"

#include <algorithm>

namespace pinion {

namespace {
// The longer a buffer has been settled, the later is the next look whether it still is: after that part of
// the time, so late at most.
constexpr Duration kOfSettled = 16;
constexpr Duration kLongestSettled = 250 * kMillisecond;
constexpr Duration kRest = 10 * kMillisecond;
}  // namespace

void SettledRegions::note(Buffer& buffer, const runlog::Event& lease, RegionRef region, May may) {
  const bool soon = buffer.reused && lease.outcome == runlog::Outcome::hit &&
                    buffer.region.region == region.region && registered(region) &&
                    interval(buffer, lease.begin_ns, *region.region) <= ledger_.away(buffer);
  if (lease.thread >= soon_.size()) soon_.resize(lease.thread + std::size_t{1});
  unsigned& in_a_row = soon_[lease.thread];
  in_a_row = soon ? std::min(in_a_row + 1, kRun) : 0;
  const bool settled = may == May::at_once ? registered(region) : may == May::after_a_run && in_a_row == kRun;
  if (settled && !buffer.settled.by_last_use) buffer.settled.since = lease.begin_ns;
  if (!settled && buffer.settled.by_last_use) unmark(buffer.region);
  if (settled) buffer.settled.use = lease;
  buffer.settled.by_last_use = settled;
}

Duration SettledRegions::interval(Buffer& buffer, Time begin, const Region& region) const {
  const std::uint32_t uses = region.uses.load(std::memory_order_relaxed);
  const std::uint32_t since = uses - std::exchange(buffer.settled.uses, uses);
  const Duration time = begin - buffer.last_use;
  if (!records_lost_) return time;
  const auto buffers = static_cast<Duration>(buffers_.in(region.range()).size());
  return time * buffers / (buffers + since);
}

Time SettledRegions::rested_at(RegionRef ref, Time now) {
  const auto mark = marked_.find(ref.region);
  const bool used = mark != marked_.end() && registered(ref_of(*mark)) && look(ref.region, mark->second, now);
  Time rested = kNotYet, since = kNever;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    const Buffer& buffer = buffers_[id];
    if (!buffer.settled.by_last_use) continue;
    rested = std::max(rested, buffer.last_use + kRest);
    since = std::min(since, buffer.settled.since);
  }
  if (rested <= now)
    unmark(ref);
  else if (used)
    rested = std::max(rested, now + std::min((now - since) / kOfSettled, kLongestSettled));
  return rested;
}

void SettledRegions::mark(RegionRef ref, Time now, Time until) {
  for (const BufferId id : buffers_.in(ref.region->range()))
    if (!buffers_[id].settled.by_last_use) return;
  Marked& marked = marked_[ref.region];
  marked.until = until;
  if (marked.generation == ref.generation && ref.region->settled.load(std::memory_order_relaxed)) return;
  marked.generation = ref.generation;
  marked.uses = ref.region->uses.load(std::memory_order_relaxed);
  marked.looked = now;
  ref.region->settled.store(true, std::memory_order_relaxed);
}

void SettledRegions::unmark(const RegionRef& ref) {
  if (marked_.erase(ref.region) != 0 && ref.current())
    ref.region->settled.store(false, std::memory_order_relaxed);
}

bool SettledRegions::look(Region* region, Marked& marked, Time now) {
  const std::uint32_t uses = region->uses.load(std::memory_order_relaxed);
  const std::uint32_t count = uses - std::exchange(marked.uses, uses);
  const Time before = std::exchange(marked.looked, now);
  if (count == 0) return false;
  // Uses leave no time: the last one was just now, for all that is known.
  region->last_use.store(domain_.clock().ticks_at(now), std::memory_order_relaxed);
  const std::vector<BufferId>& all = buffers_.in(region->range());
  const auto buffers = static_cast<std::uint32_t>(all.size());
  std::uint32_t left = count;
  for (std::uint32_t i = 0; i < buffers; ++i) {
    Buffer& buffer = buffers_[all[i]];
    buffer.last_use = std::max(buffer.last_use, now);
    buffer.busy_until = std::max(buffer.busy_until, now);
    buffer.settled.passed = 0;  // the next one is learnt from
    const std::uint32_t share = left / (buffers - i);
    left -= share;
    note_run(buffer, share, before, now);
  }
  return true;
}

/// The buffers of a region share its count, and each use lasts as those that left records.
void SettledRegions::note_run(const Buffer& buffer, std::uint32_t count, Time begin, Time end) {
  if (count == 0) return;
  runlog::Event run = buffer.settled.use;
  run.kind = runlog::EventKind::uses;
  run.begin_ns = begin;
  run.end_ns = end;
  run.count = count;
  run.leased_ns =
      std::min(count * static_cast<std::uint64_t>(buffer.lasts), static_cast<std::uint64_t>(end - begin));
  runs_.push_back(run);
}

std::size_t SettledRegions::bytes(Time now) {
  std::size_t bytes = 0;
  std::erase_if(marked_, [&](const Marks::value_type& mark) {
    if (!registered(ref_of(mark))) return true;
    if (mark.second.until >= now) bytes += mark.first->range().bytes();
    return false;
  });
  return bytes;
}

void SettledRegions::end(const RegionRef& ref, Time now) {
  const auto mark = marked_.find(ref.region);
  if (mark == marked_.end()) return;
  if (ref.current() && mark->second.generation == ref.generation) look(ref.region, mark->second, now);
  unmark(ref);
}

void SettledRegions::clear(Time now) {
  while (!marked_.empty()) end(ref_of(*marked_.begin()), now);
}

}  // namespace pinion
