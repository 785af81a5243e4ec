#include "lease/shared_leases.h"

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

SharedLeases::SharedLeases(KnownDomains& domains, const ForkGate& fork_gate, bool allowed)
    : domains_(domains), fork_gate_(fork_gate), allowed_(allowed && prepare_thread_fence()) {}

// ---- opening ----

void SharedLeases::note_allowed_hit(ThreadContext& thread, int domain, Region& region) {
  const auto me = static_cast<std::uint8_t>(thread.index + 1u);
  const bool changed = region.shared.seen_thread.load(std::memory_order_relaxed) != me;
  const unsigned changes = changed ? region.shared.thread_changes.load(std::memory_order_relaxed) + 1u : 0;
  region.shared.seen_thread.store(me, std::memory_order_relaxed);
  region.shared.thread_changes.store(static_cast<std::uint8_t>(changes % kContended),
                                     std::memory_order_relaxed);
  if (changes == kContended && may_share(domain, region)) open(domain, region);
}

bool SharedLeases::may_share(int number, const Region& region) const {
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

void SharedLeases::open(int domain, Region& region) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  if (region.shared.at.load(std::memory_order_relaxed) != 0 || region.word.load().permanent()) return;
  for (std::size_t place = 0; place < kSharedPlaces; ++place) {
    // A lease that outlived its run, or came into a forked child, keeps its place from being used.
    if (places_[place].region.region != nullptr || leases_out_at(place) != 0) continue;
    const Access access = region.access.load(std::memory_order_relaxed);
    if (domains_.domain(domain).lease(&region, region.range(), access) == nullptr) return;
    places_[place] = {.region = {&region, region.generation()},
                      .domain = domain,
                      .uses = uses_at(place),
                      .used = monotonic_now()};
    opens_.fetch_add(1, std::memory_order_release);
    region.shared.at.store(static_cast<std::uint16_t>(place + 1), std::memory_order_release);
    return;
  }
}

// ---- closing ----

void SharedLeases::close(Open& open) {
  open.closing = true;
  open.region.region->shared.at.store(0, std::memory_order_seq_cst);
}

void SharedLeases::look(Time now) {
  if (opens_.load(std::memory_order_acquire) == 0) return;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (std::size_t place = 0; place < kSharedPlaces; ++place) {
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

void SharedLeases::close(int domain) {
  if (opens_.load(std::memory_order_acquire) == 0) return;
  const HeldSignals held;
  const MutexLock lock(mutex_);
  for (Open& open : places_)
    if (open.region.region != nullptr && !open.closing && (domain == kAllDomains || open.domain == domain))
      close(open);
}

std::size_t SharedLeases::take_over(std::array<Open, kSharedPlaces>& over) {
  const HeldSignals held;
  const MutexLock lock(mutex_);
  std::size_t count = 0;
  for (std::size_t place = 0; place < kSharedPlaces; ++place) {
    Open& open = places_[place];
    if (open.region.region == nullptr) continue;
    if (!open.closing && open.region.region->word.load().doomed()) close(open);
    if (!open.closing) continue;
    if (!open.fenced) open.fenced = thread_fence();
    if (!open.fenced || leases_out_at(place) != 0) continue;
    open.region.region->count_uses(static_cast<std::uint32_t>(uses_at(place) - open.uses));
    over[count++] = std::exchange(open, {});
    opens_.fetch_sub(1, std::memory_order_release);
  }
  return count;
}

}  // namespace pinion
