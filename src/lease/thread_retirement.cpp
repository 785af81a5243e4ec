#include "lease/thread_retirement.h"

#include <algorithm>

#include "base/held_signals.h"
#include "registry/acquisition.h"
#include "registry/blocking.h"

namespace pinion {

void ThreadRetirement::after_release(ThreadContext& thread, int number, RegionRef idle) {
  if (!on_threads_ || fork_gate_.is_closed()) return retire(thread, number, idle);
  if (domains_.observes(number)) return;
  Retention& retention = domains_.retention(number);
  if (!retention.may_claim()) return;
  const HeldSignals held;
  while (Region* claimed = retention.claim_after_release(idle)) retire_claimed(thread, number, claimed);
}

void ThreadRetirement::after_registration(ThreadContext& thread, int number) {
  if (!on_threads_ || domains_.observes(number)) return;
  while (Region* claimed = domains_.retention(number).claim_after_registration())
    retire_claimed(thread, number, claimed);
}

// ---- what threads count for themselves ----

void ThreadRetirement::release_after_run(Transfer& transfer) {
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return;
  static_cast<void>(give_back(*thread, transfer));
  transfer.counted_at = 0;
  arena_.end_closed();
  counted_.end_closed(
      [this](int number, const RegionRef& ref) { domains_.table().release_after_run(number, ref); });
}

void ThreadRetirement::end_closed() { end_places(nullptr); }

void ThreadRetirement::look(Time now) {
  counted_.look(now);
  end_closed();
}

void ThreadRetirement::retire_closed(ThreadContext& thread) {
  end_places(&thread);
  for (int i = 0; i < domains_.count(); ++i) reap(thread, i);
}

void ThreadRetirement::close(int number) {
  arena_.close(number);
  counted_.close(number);
  end_closed();
}

bool ThreadRetirement::close_idle(ThreadContext& thread, std::uint64_t bytes, Duration rest) {
  const bool unshared = unshare(thread, kAllDomains);
  if (!arena_.close_idle(bytes, rest)) return unshared;
  retire_closed(thread);
  arena_.end_closed();  // shows the memory to children: the registrations have ended
  return true;
}

bool ThreadRetirement::end_places(ThreadContext* thread) {
  bool any = false;
  arena_.end_closed();
  counted_.end_closed([&](int number, const RegionRef& ref) {
    const auto released = domains_.domain(number).release(ref.region);
    if (thread != nullptr && released == RegionWord::Released::idle && follows_releases())
      after_release(*thread, number, ref);
    any = true;
  });
  return any;
}

bool ThreadRetirement::unshare(ThreadContext& thread, int number) {
  counted_.close(number);
  return end_places(&thread);
}

// ---- ordinary regions ----

void ThreadRetirement::retire(ThreadContext& thread, int number, RegionRef ref) {
  const HeldSignals held;
  if (Region* region = domains_.domain(number).begin_retire(ref)) retire_claimed(thread, number, region);
}

void ThreadRetirement::retire_claimed(ThreadContext& thread, int number, Region* region) {
  pinion::retire_claimed(domains_.domain(number), region, Actor::application,
                         [&](const DeviceCall& call) { note(thread, number, call); });
}

void ThreadRetirement::reap(ThreadContext& thread, int number) {
  const HeldSignals held;
  while (Region* region = domains_.domain(number).begin_reap()) retire_claimed(thread, number, region);
}

void ThreadRetirement::let_go_in(ThreadContext& thread, int number, Range range) {
  unshare(thread, number);
  reap(thread, number);
  for (const RegionRef& idle : domains_.domain(number).idle_regions(range)) retire(thread, number, idle);
}

void ThreadRetirement::let_idle_go(ThreadContext& thread) {
  const HeldSignals held;
  unshare(thread, kAllDomains);
  for (int i = 0; i < domains_.count(); ++i)
    for (const RegionRef& idle : domains_.domain(i).idle_regions()) retire(thread, i, idle);
}

bool ThreadRetirement::retire_for(ThreadContext& thread, std::uint64_t bytes) {
  const Budget& budget = domains_.table().budget();
  const std::uint64_t most = budget.most_bytes(), regions = budget.most_regions();
  unshare(thread, kAllDomains);
  bool any = false;
  for (int i = 0; i < domains_.count(); ++i)
    for (Region* victim : domains_.domain(i).begin_shrink(most - std::min(most, bytes),
                                                          regions - std::min<std::uint64_t>(regions, 1))) {
      retire_claimed(thread, i, victim);
      any = true;
    }
  return any;
}

bool ThreadRetirement::make_room(ThreadContext& thread) {
  Budget& budget = domains_.table().budget();
  if (budget.bytes() == 0) return false;
  close_idle(thread, UINT64_MAX, ArenaLeases::kRest);
  let_idle_go(thread);
  const Time patience = monotonic_now() + kRoomPatience;
  while (monotonic_now() < patience) {
    const std::uint32_t departures = budget.departures().load();
    if (budget.leaving_regions() == 0) break;
    budget.departures().wait(departures, patience);
  }
  return true;
}

void ThreadRetirement::begin_own(ThreadContext& thread, std::uint64_t bytes) {
  HeldSignals held;
  Budget& budget = domains_.table().budget();
  const Time patience = monotonic_now() + kRoomPatience;
  while (monotonic_now() < patience) {
    const std::uint32_t departures = budget.departures().load();
    if (budget.reserve(bytes, RealClock().now())) return;
    if (retire_for(thread, bytes)) continue;
    if (budget.leaving_regions() == 0) break;
    held.rest([&] { budget.departures().wait(departures, patience); });
  }
  budget.exceed(bytes, RealClock().now());
}

void ThreadRetirement::end_own(std::uint64_t bytes) {
  const HeldSignals held;
  domains_.table().budget().release(bytes, RealClock().now());
}

void ThreadRetirement::note(ThreadContext& thread, int number, const DeviceCall& call) {
  Record none;
  none.domain = static_cast<unsigned>(number);
  trail_.device_called(thread, none, call);
  thread.counters[number].registration_ticks.add(call.end - call.begin);
  thread.counters[number].preempted_ns.add(static_cast<std::uint64_t>(call.preempted));
  thread.counters[number].delayed_ticks.add(call.end - call.begin);
}

}  // namespace pinion
