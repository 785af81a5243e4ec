#include "lease/counters.h"

#include <new>

#include "base/held_signals.h"
#include "base/mutex.h"
#include "base/warning.h"
#include "lease/copy_counters.h"

namespace pinion {

namespace {

void add(runlog::Counters& sum, const ThreadCounters& c) {
  const Calibration& scale = calibration();
  const auto ns = [&](const Counter& ticks) {
    return static_cast<std::uint64_t>(scale.to_duration(ticks.get()));
  };
  sum.acquires += c.hits.get() + c.waits.get() + c.misses.get() + c.bounced.get() + c.observed.get();
  sum.hits += c.hits.get();
  sum.waits += c.waits.get();
  sum.misses += c.misses.get();
  sum.bounced += c.bounced.get();
  sum.observed += c.observed.get();
  sum.acquired_bytes += c.acquired_bytes.get();
  sum.bounced_bytes += c.bounced_bytes.get();
  sum.registrations += c.registrations.get();
  sum.deregistrations += c.deregistrations.get();
  sum.registration_failures += c.registration_failures.get();
  sum.wait_ns += ns(c.wait_ticks);
  sum.registration_ns += ns(c.registration_ticks);
  sum.bounce_ns += ns(c.bounce_ticks);
  sum.preempted_ns += c.preempted_ns.get();
  sum.bookkeeping_ns += static_cast<std::uint64_t>(scale.to_duration(c.bookkeeping.ticks()));
  sum.bookkeeping_samples += c.bookkeeping.samples();
}

void add(runlog::Counters& sum, const PassedCounters& passed) {
  sum.strict_keys_ns += static_cast<std::uint64_t>(calibration().to_duration(passed.strict_ticks.get()));
  for (unsigned why = 0; why < runlog::kPassedReasons; ++why) {
    sum.passed[why].count += passed.counts[why].get();
    sum.passed[why].bytes += passed.bytes[why].get();
  }
}

}  // namespace

CopyCounters& copy_counters() {
  static constinit CopyCounters counters;
  return counters;
}

void RunCounters::start() {
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    for (ThreadCounters& counters : thread->counters) new (&counters) ThreadCounters;
    new (&thread->passed) PassedCounters;
    for (Record old; thread->ring.pop(old);) {
    }
    dropped_before_ += thread->ring.dropped();
  }
}

runlog::Counters RunCounters::of(int domain) const {
  const HeldSignals held;
  runlog::Counters sum{};
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next)
    add(sum, thread->counters[domain]);
  DomainSlot& slot = domains_.slot(domain);
  add(sum, slot.by_helper);
  const DomainMeter::Figures registered = slot.meter.read(clock_.now());
  sum.registered_now_bytes = slot.domain->registered_bytes();
  sum.registered_peak_bytes = registered.peak;
  sum.registered_byte_ns = registered.byte_ns;
  sum.regions_now = slot.domain->region_count();
  return sum;
}

runlog::Counters RunCounters::all() const {
  const HeldSignals held;
  runlog::Counters sum;
  {
    const MutexLock lock(memory_.told_mutex);
    sum = memory_.told;
  }
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    for (const ThreadCounters& counters : thread->counters) add(sum, counters);
    sum.records_dropped += thread->ring.dropped();
    add(sum, thread->passed);
  }
  sum.records_dropped -= dropped_before_;
  sum.memory_events = watch_.events_seen();
  const Time now = clock_.now();
  const BeyondLimits beyond = domains_.budget().beyond(now);
  sum.beyond_bytes = beyond.bytes;
  sum.beyond_regions = beyond.regions;
  sum.beyond_ns = static_cast<std::uint64_t>(beyond.time);
  double busy = 0;
  domains_.for_each([&](DomainSlot& slot) {
    add(sum, slot.by_helper);
    sum.exposed_byte_ns += slot.meter.read(now).exposed_byte_ns;
    busy += slot.device ? slot.device->modelled_busy_seconds() : slot.modelled_busy_seconds;
  });
  copy_counters().add_to(sum);
  sum.collapses.bytes = collapses_.bytes.get();
  sum.collapses.cpu_ns = collapses_.cpu_ns.get();
  sum.collapses.longest_ns = collapses_.longest_ns.get();
  for (unsigned why = 0; why < kCollapseRefusals; ++why)
    sum.collapses.refused_bytes[why] = collapses_.refused_bytes[why].get();
  sum.advised_bytes = watch_.births().advised_bytes();
  sum.modelled_busy_ns = static_cast<std::uint64_t>(busy * 1e9);
  memory_.meter.read(clock_.now(),
                     [&](const runlog::Series& series, std::int64_t regions, std::int64_t peak_regions) {
                       sum.registered_peak_bytes = series.peak();
                       sum.registered_now_bytes = series.level();
                       sum.registered_byte_ns = series.byte_ns();
                       sum.regions_now = static_cast<std::uint64_t>(regions);
                       sum.regions_peak = static_cast<std::uint64_t>(peak_regions);
                     });
  return sum;
}

void RunCounters::tell(const runlog::Counters& helper) {
  const MutexLock lock(memory_.told_mutex);
  memory_.told = helper;
}

void RunCounters::count_device_call(ThreadCounters& counters, bool registration, const Error& error) {
  if (registration)
    (error ? counters.registration_failures : counters.registrations).add(1);
  else if (!error)
    counters.deregistrations.add(1);
  else if (!failed_deregistration_reported_.exchange(true))
    warn("%s. The memory stays registered and counted; Pinion tries again (said once)", error.message);
}

void RunCounters::count_collapse(const Collapse& done, Duration cpu, Duration took) {
  collapses_.bytes.add(done.made);
  collapses_.cpu_ns.add(static_cast<std::uint64_t>(cpu));
  const std::uint64_t longest = collapses_.longest_ns.get();
  collapses_.longest_ns.add(std::max(longest, static_cast<std::uint64_t>(took)) - longest);
  for (unsigned why = 0; why < kCollapseRefusals; ++why)
    collapses_.refused_bytes[why].add(done.refused_bytes[why]);
}

}  // namespace pinion
