#include "lease/counted_leases.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/held_signals.h"
#include "lease/thread_fence.h"

namespace pinion {

namespace {

/// Threads contend for a region if so many hits in a row, of those that are looked at, come from another
/// thread than the one before.
constexpr unsigned kContended = 4;
/// A region that has rested so long is shared no more. Retention lets none go sooner.
constexpr Duration kRest = 5 * kMillisecond;

std::uint64_t uses_at(std::size_t place) {
  std::uint64_t uses = 0;
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    const LeaseCount& count = thread->counted().at[place];
    uses += count.taken.load(std::memory_order_relaxed) - count.refused.load(std::memory_order_relaxed);
  }
  return uses;
}

}  // namespace

CountedLeases::CountedLeases(KnownDomains& domains, const ForkGate& fork_gate, bool has_arena, bool shares)
    : domains_(domains),
      fork_gate_(fork_gate),
      ordered_(!(has_arena || shares) || !prepare_thread_fence()),
      shares_(shares && !ordered_) {}

// ---- opening ----

void CountedLeases::note_shareable_hit(ThreadContext& thread, int domain, Region& region) {
  const auto me = static_cast<std::uint8_t>(thread.index + 1u);
  const bool changed = region.shared.seen_thread.load(std::memory_order_relaxed) != me;
  const unsigned changes = changed ? region.shared.thread_changes.load(std::memory_order_relaxed) + 1u : 0;
  region.shared.seen_thread.store(me, std::memory_order_relaxed);
  region.shared.thread_changes.store(static_cast<std::uint8_t>(changes % kContended),
                                     std::memory_order_relaxed);
  if (changes == kContended && may_share(domain, region)) share(domain, region);
}

bool CountedLeases::may_share(int number, const Region& region) const {
  const Domain& domain = domains_.domain(number);
  if (domain.pressed() || domain.registers_bytes() || fork_gate_.is_closed()) return false;
  if (domains_.table().budget().memory_is_short()) return false;
  switch (domains_.trail_of_hits(number)) {
    case HitTrail::none:
      return true;
    case HitTrail::time:
      return false;
    case HitTrail::record:
      return region.settled.load(std::memory_order_relaxed);
  }
  return false;
}

bool CountedLeases::open(std::size_t begin, std::size_t end, int domain, Region& region) {
  for (std::size_t place = begin; place < end; ++place) {
    if (places_.size() <= place) {
      try {
        places_.resize(place + 1);
      } catch (const std::bad_alloc&) {
        return false;
      }
    }
    // A lease that outlived its run, or came into a forked child, keeps its place from being used.
    if (places_[place].region.region != nullptr || leases_out_at(place) != 0) continue;
    places_[place] = {.region = {&region, region.generation()},
                      .domain = domain,
                      .uses = uses_at(place),
                      .used = monotonic_now()};
    opens_.fetch_add(1, std::memory_order_release);
    region.shared.at.store(static_cast<std::uint16_t>(place + 1), std::memory_order_release);
    return true;
  }
  return false;
}

void CountedLeases::share(int number, Region& region) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  if (region.shared.at.load(std::memory_order_relaxed) != 0 || region.word.load().permanent()) return;
  Domain& domain = domains_.domain(number);
  const Access access = region.access.load(std::memory_order_relaxed);
  if (domain.lease(&region, region.range(), access) == nullptr) return;
  if (!open(0, kSharedPlaces, number, region)) domain.release(&region);
}

bool CountedLeases::adopt(int domain, Region& segment) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  return segment.shared.at.load(std::memory_order_relaxed) == 0 &&
         open(kSharedPlaces, kCountedPlaces, domain, segment);
}

// ---- closing ----

void CountedLeases::close(Open& open) {
  open.closing = true;
  open.region.region->shared.at.store(0, std::memory_order_seq_cst);
}

void CountedLeases::look(Time now) {
  if (opens_.load(std::memory_order_acquire) == 0) return;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (std::size_t place = 0; place < std::min(kSharedPlaces, places_.size()); ++place) {
    Open& open = places_[place];
    Region* const region = open.region.region;
    if (region == nullptr || open.closing) continue;
    const std::uint64_t uses = uses_at(place);
    if (uses != open.uses) open.used = now;
    region->count_uses(static_cast<std::uint32_t>(uses - open.uses));
    open.uses = uses;
    if (now - open.used > kRest || region->word.load().doomed() || !may_share(open.domain, *region))
      close(open);
  }
}

void CountedLeases::close(int domain) {
  if (opens_.load(std::memory_order_acquire) == 0) return;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (std::size_t place = 0; place < std::min(kSharedPlaces, places_.size()); ++place) {
    Open& open = places_[place];
    if (open.region.region != nullptr && !open.closing && (domain == kAllDomains || open.domain == domain))
      close(open);
  }
}

bool CountedLeases::take_over(Open& over) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (std::size_t place = 0; place < places_.size(); ++place) {
    Open& open = places_[place];
    if (open.region.region == nullptr) continue;
    if (!open.closing && open.region.region->word.load().doomed()) close(open);
    if (!open.closing) continue;
    if (!open.fenced) open.fenced = ordered_ || thread_fence();
    if (!open.fenced || leases_out_at(place) != 0) continue;
    open.region.region->count_uses(static_cast<std::uint32_t>(uses_at(place) - open.uses));
    over = std::exchange(open, {});
    opens_.fetch_sub(1, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace pinion
