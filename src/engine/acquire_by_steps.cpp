// The part of an acquire that locks, waits and calls the device.
#include <algorithm>

#include "base/held_signals.h"
#include "base/preemption.h"
#include "device/kernel/mapped_pages.h"
#include "engine/lease_path.h"
#include "registry/blocking.h"
#include "registry/make_room.h"

namespace pinion {

namespace {

class Counted {
 public:
  Counted(std::atomic<std::uint32_t>& count, bool counts) : count_(count), n_(counts ? 1 : 0) {
    count_.fetch_add(n_, std::memory_order_relaxed);
  }
  ~Counted() { count_.fetch_sub(n_, std::memory_order_relaxed); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
  const std::uint32_t n_;
};

}  // namespace

Domain::Step LeasePath::acquire_by_steps(ThreadContext& thread, Domain::Ticket& ticket, Transfer& transfer) {
  HeldSignals held;
  const Counted waits(waiting_, transfer.record.call != CallKind::prepare);
  watch_.check_hooks();
  Record& record = transfer.record;
  const int number = record.domain;
  if (ticket.owner == nullptr) {
    ticket.large = mapped_pages().around(ticket.pages);
    arena_.make_way(number, ticket.pages, ticket.access);
  }
  ThreadCounters& counters = thread.counters[number];
  const Ticks begin = ticks_now();
  PreemptionMeter meter;  // of all that follows: a core is lost between device calls, too
  Ticks in_device = 0;
  Duration least = 0, preempted = 0;  // of the device calls
  bool waited = false;
  const auto run = [&] {
    return run_ticket(
        domain(number), ticket, Actor::application, waited,
        [&](const DeviceCall& call) {
          note(thread, record, call);
          in_device += call.end - call.begin;
          least += domain(number).device().least_time(call.registration, call.entries);
          preempted += call.preempted;
        },
        [this](Range pages) { return watch_.watch(pages); }, [&](auto&& wait) { held.rest(wait); });
  };
  auto step = run();
  meter.end();
  Ticks for_others = 0;  // counted in their domains
  if (step == Domain::Step::refused && ticket.over_limit) {
    const Ticks asked = ticks_now();
    if (others_make_room(thread, number, ticket.pages.bytes()) ||
        (ticket.owner == nullptr && let_arena_go(thread, ticket.pages.bytes(), ArenaLeases::kRest))) {
      for_others = ticks_now() - asked;
      step = run();
    }
  }
  const Ticks all = ticks_now() - begin;
  record.wait = std::min(all, Record::kMostWait);
  counters.registration_ticks.add(in_device);
  const Ticks between = all > in_device + for_others ? all - in_device - for_others : 0;  // device calls
  counters.wait_ticks.add(between);
  const Duration lost = lost_waking(calibration().to_duration(between) - ticket.rested);
  preempted += ticket.preempted + (lost > 0 && meter.forced() ? lost : 0);
  preempted = std::max(preempted, waited ? 0 : meter.lost(least));
  counters.preempted_ns.add(static_cast<std::uint64_t>(preempted));
  counters.delayed_ticks.add(std::max(all, in_device));
  if (step == Domain::Step::refused) {
    // The helper may register it ahead for a later use, so it must learn if the memory goes before. Where its
    // events stay unseen, the helper finds that by itself.
    watch_.watch(ticket.pages);
    return step;
  }

  // Before signals are let through: the transfer, and so the caller, has the lease.
  record.set_region({ticket.region, ticket.region->generation()});
  record.outcome = outcome_of(ticket.registered_here, waited);
  if (settles_ && ticket.registered_here) {
    while (Region* claimed = retention_of_[record.domain]->claim_after_registration())
      retire_here(thread, number, claimed);
  }
  return step;
}

bool LeasePath::others_make_room(ThreadContext& thread, int number, std::size_t bytes) {
  const Budget& budget = domains_.budget();
  const std::uint64_t most = budget.most_bytes(), regions = budget.limits().regions;
  const auto for_each = [this](auto&& f) {
    domains_.for_each([&](const DomainSlot& slot) { f(*slot.domain); });
  };
  if (!idle_regions_make_room(budget, bytes, for_each)) return false;
  bool made = false;
  for (int i = 0; i < domains_.count(); ++i) {
    if (i == number) continue;
    for (Region* victim : domain(i).begin_shrink(most - bytes, regions - 1)) {
      retire_here(thread, i, victim);
      made = true;
    }
  }
  return made;
}

}  // namespace pinion
