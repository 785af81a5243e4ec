#include "lease/acquire_by_steps.h"

#include <algorithm>

#include "base/held_signals.h"
#include "base/preemption.h"
#include "lease/large_request.h"
#include "registry/blocking.h"

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

/// The time that a thread spends on an acquisition: device calls, work for other domains, the rest.
class AcquireTime {
 public:
  void add(const DeviceCall& call, Duration least) {
    in_device_ += call.end - call.begin;
    least_ += least;
    preempted_ += call.preempted;
  }
  /// Calls that are counted in another domain, or waits for the arena.
  void add_for_others(Ticks took) { for_others_ += took; }
  /// No core is lost to the acquisition any more.
  void end_meter() { meter_.end(); }

  void count(ThreadCounters& counters, Record& record, const AcquireResult& result) const {
    const Ticks all = ticks_now() - begin_;
    record.wait = std::min(all, Record::kMostWait);
    counters.registration_ticks.add(in_device_);
    const Ticks known = in_device_ + for_others_;
    const Ticks between = all > known ? all - known : 0;  // device calls
    counters.wait_ticks.add(between);
    const Duration lost = lost_waking(calibration().to_duration(between) - result.rested);
    Duration preempted = preempted_ + result.preempted + (lost > 0 && meter_.forced() ? lost : 0);
    preempted = std::max(preempted, result.waited ? 0 : meter_.lost(least_));
    counters.preempted_ns.add(static_cast<std::uint64_t>(preempted));
    counters.delayed_ticks.add(std::max(all, in_device_));
  }

 private:
  const Ticks begin_ = ticks_now();
  PreemptionMeter meter_;  // of all: a core is lost between device calls, too
  Ticks in_device_ = 0, for_others_ = 0;
  Duration least_ = 0, preempted_ = 0;  // of the device calls
};

}  // namespace

AcquireResult AcquireBySteps::run(ThreadContext& thread, AcquireRequest request, Record& record) {
  HeldSignals held;
  const Counted waits(waiting_, record.call != CallKind::prepare);
  watch_.check_hooks();
  const int number = record.domain;
  Domain& domain = domains_.domain(number);
  if (request.owner == nullptr) {
    domains_.table().look_at_mappings();
    request.large = large_pages_to_register(domain.device(), request.pages);
    arena_.make_way(number, request.pages, request.access);
  }
  Acquisition acquisition(domain, request, domains_.all());
  AcquireTime time;
  const auto note_call = [&](const DeviceCall& call) {
    if (call.domain == &domain) {
      trail_.device_called(thread, record, call);
      return time.add(call, domain.device().least_time(call.registration, call.entries));
    }
    retirement_.note(thread, domains_.number_of(call.domain), call);
    time.add_for_others(call.end - call.begin);
  };
  const bool is_held = record.kind != runlog::EventKind::lease;
  const auto run = [&] {
    return run_blocking(
        acquisition, Actor::application, note_call, [&](Range pages) { return watch_.watch(pages, is_held); },
        [&](auto&& wait) { held.rest(wait); });
  };
  AcquireStep step = run();
  time.end_meter();
  const AcquireResult& result = acquisition.result();
  if (step == AcquireStep::refused && result.over_limit && request.owner == nullptr) {
    const Ticks asked = ticks_now();
    if (closing_.let_go(thread, request.pages.bytes(), ArenaLeases::kRest)) {
      time.add_for_others(ticks_now() - asked);
      step = run();
    }
  }
  // The program waits for no preparation.
  if (record.call != CallKind::prepare) time.count(thread.counters[number], record, result);
  if (step == AcquireStep::refused) {
    // The helper may register it ahead for a later use, so it must learn if the memory goes before. Where its
    // events stay unseen, the helper finds that by itself.
    static_cast<void>(watch_.watch(request.pages));
    return result;
  }

  // Before signals are let through: the transfer, and so the caller, has the lease.
  record.set_region({result.region, result.region->generation()});
  record.outcome = outcome_of(result.registered_here, result.waited);
  if (result.registered_here) retirement_.after_registration(thread, number);
  return result;
}

}  // namespace pinion
