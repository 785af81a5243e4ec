#include "lease/acquire_by_steps.h"

#include <algorithm>

#include "base/held_signals.h"
#include "base/machine_memory.h"
#include "base/preemption.h"
#include "base/warning.h"
#include "device/kernel/mapped_pages.h"
#include "placement/hugepage_heap.h"
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

Record hold_event(const PeerHold& hold, runlog::EventKind kind) {
  Record record;
  record.begin = record.end = ticks_now();
  record.address = hold.pages.begin;
  record.bytes = hold.pages.bytes();
  record.kind = kind;
  record.domain = static_cast<unsigned>(hold.domain);
  return record;
}

}  // namespace

bool is_possible(Range request) {
  return is_addressable(request.begin, request.bytes()) && request.bytes() <= machine_memory();
}

LargeRange large_pages_to_register(const Device& device, Range pages) {
  const LargeRange large = mapped_pages().around(pages);
  if (large.empty() || !device.capabilities().hides_from_children) return large;
  return process_heap().owns(reinterpret_cast<const void*>(pages.begin)) ? large : LargeRange{};
}

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
    if (retirement_.close_idle(thread, request.pages.bytes(), ArenaLeases::kRest)) {
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

// ---- segments of the arena ----

bool AcquireBySteps::may_open_segments(int number) const {
  return !domains_.observes(number) && !domains_.domain(number).registers_bytes() &&
         !watch_.keeps_nothing() && !watch_.blind() && !retirement_.stopped();
}

bool AcquireBySteps::register_segment(ThreadContext& thread, int number, Range request, Duration expected) {
  retirement_.retire_closed(thread);  // an earlier registration of the segment may be over
  const bool ahead = expected != kNever;
  const Range pages = arena_.begin_opening(number, request, ahead);
  if (pages.empty()) return true;
  Record none;
  if (ahead) none.call = CallKind::prepare;
  none.domain = static_cast<unsigned>(number);
  const AcquireResult result = run(
      thread, {.pages = pages, .access = arena_.rights(), .owner = &arena_, .expected = ahead ? expected : 0},
      none);
  const bool counts = result.region != nullptr && retirement_.counted().adopt(number, *result.region);
  if (result.region != nullptr && !counts) {  // all places are taken
    result.region->word.doom();
    domains_.domain(number).release(result.region);
    retirement_.reap(thread, number);
  }
  arena_.finish_opening(number, pages, counts ? result.region : nullptr);
  if (counts) return true;
  retirement_.retire_closed(thread);
  if (!segment_reported_.exchange(true))
    warn(
        "a segment of the arena stays unregistered, and its requests are served one by one: "
        "%s (said once)",
        result.error.message);
  return false;
}

// ---- holds ----

Error AcquireBySteps::hold(ThreadContext& thread, int number, Range pages, Access access, PeerHold& hold) {
  if (!is_possible(pages)) return Error::make(EFAULT, "no memory can be there");
  Record registering;
  registering.domain = static_cast<unsigned>(number);
  const AcquireResult result = run(thread, {.pages = pages, .access = access}, registering);
  if (!result.region) return result.error;
  hold = {registering.region(), pages, number};
  Domain& domain = domains_.domain(number);
  const bool held = domain.begin_hold(hold.region);
  if (domain.release(hold.region.region) == RegionWord::Released::idle_doomed) {
    watch_.idle_and_doomed(pages.bytes());
    retirement_.reap(thread, number);
  }
  if (!held) return Error::make(EBUSY, "the memory is changing, or memory events may be missed now");
  trail_.push(thread, hold_event(hold, runlog::EventKind::hold_begin));
  return {};
}

void AcquireBySteps::end_hold(ThreadContext& thread, const PeerHold& hold) {
  const auto released = domains_.domain(hold.domain).end_hold(hold.region.region);
  trail_.push(thread, hold_event(hold, runlog::EventKind::hold_end));
  if (released == RegionWord::Released::idle) retirement_.retire(thread, hold.domain, hold.region);
  if (released == RegionWord::Released::idle_doomed) retirement_.reap(thread, hold.domain);
}

}  // namespace pinion
