#include "helper/device_work.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "device/kernel/collapse.h"
#include "helper/helper_thread.h"
#include "lease/acquire_by_steps.h"
#include "monitor/sandbox.h"
#include "monitor/userfault.h"

namespace pinion {

namespace {
// Shorter calls make other threads wait no less, and their forks longer (tests/helper/collapse_waits.cpp).
constexpr std::size_t kLongestCollapse = std::size_t{64} << 20;
}  // namespace

void DeviceWork::note(DomainSlot& slot, const DeviceCall& call) {
  counters_.count_device_call(slot.by_helper, call.registration, call.error);
  progress_.fetch_add(1, std::memory_order_relaxed);
  Record record = record_of(call, Record());
  record.flags |= runlog::kByHelper;
  record.domain = static_cast<unsigned>(slot.number);
  log_.add(event_of({record, 0}, calibration()));
}

void DeviceWork::act(const std::function<void()>& attend) {
  if (watch_.much_doomed()) desk_.woken_to_reap();
  watch_.take_doomed();
  while (act_once(attend)) drain_.drain();
}

bool DeviceWork::act_once(const std::function<void()>& attend) {
  std::optional<ForkGate::Passage> passage(std::in_place, fork_gate_);
  if (watch_.keeps_nothing()) desk_.stop_acting();
  Desk::Job job = desk_.next(clock_.now(), attend);
  switch (job.kind) {
    case Desk::Job::Kind::none:
      return false;
    case Desk::Job::Kind::deregister:
      deregister(job, passage);
      return true;
    case Desk::Job::Kind::register_ahead:
      register_ahead(job);
      return true;
  }
  return false;
}

void DeviceWork::collapse(Retention::Action& action) {
  Retention::Collapsed& collapsed = action.collapsed;
  Duration waited_for = 0;
  const OrdinarySlice slice;
  for (Range rest = action.collapse; !rest.empty() && !collapsed.refused;) {
    collapsed.refused =
        fork_gate_.is_closed() || userfaultfd_gave_way() || has_new_filter() || waits_matter();
    if (collapsed.refused) {
      counters_.count_no_collapse(rest.bytes());
      break;
    }
    const Range part{rest.begin, rest.begin + std::min(rest.bytes(), kLongestCollapse)};
    const Time begun = monotonic_now();
    const Duration cpu = thread_cpu_now();
    const Collapse done = pinion::collapse(part, page_files_);
    const Duration used = thread_cpu_now() - cpu, took = monotonic_now() - begun;
    counters_.count_collapse(done, used, took);
    waited_for += took;
    collapsed.bytes += done.bytes;
    collapsed.made += done.made;
    collapsed.took += used;
    collapsed.refused = done.error != 0;
    rest.begin = part.end;
  }
  // Other threads' mmaps and writes may have waited for all of it.
  desk_.time_budget().worked(waited_for);
}

void DeviceWork::deregister(Desk::Job& job, std::optional<ForkGate::Passage>& passage) {
  DomainSlot& slot = domains_.slot(job.in->number);
  DeviceCall last;
  for (Region* region : job.regions)
    last = retire_claimed(*slot.domain, region, Actor::helper,
                          [&](const DeviceCall& call) { note(slot, call); });
  if (!job.action.collapse.empty()) {
    passage.reset();  // a fork would wait for it
    collapse(job.action);
  }
  const Calibration& scale = calibration();
  desk_.done(job, {}, true, scale.to_duration(last.end - last.begin) - last.preempted,
             scale.to_time(last.end));
}

void DeviceWork::register_ahead(const Desk::Job& job) {
  DomainSlot& slot = domains_.slot(job.in->number);
  const CostEstimates& costs = slot.kept.costs;
  const Range pages = job.action.pages;
  // The helper would wait for the program's answer to a fault, and the end of the run for the helper.
  if (userfaultfd_gave_way()) return desk_.done(job, {}, false, 0, clock_.now());
  domains_.look_at_mappings();
  Acquisition acquisition(*slot.domain,
                          {.pages = pages,
                           .large = large_pages_to_register(*slot.device, pages),
                           .access = job.action.access,
                           .lease = false,
                           .expected = costs.registration.expected(costs.entries_a_page.of(pages.pages()))});
  Duration took = 0;
  std::vector<DeviceCall> refused;
  const AcquireStep step = run_blocking(
      acquisition, Actor::helper,
      [&](const DeviceCall& call) {
        if (call.registration && call.error)
          refused.push_back(call);
        else
          note(slot, call);
        if (call.registration && !call.error)
          took = calibration().to_duration(call.end - call.begin) - call.preempted;
      },
      [this](Range range) { return watch_.watch(range); });
  const bool ok = step == AcquireStep::leased;
  // Memory unmapped shortly before the decision, with its event still on the way, is not a failure.
  if (!refused.empty()) drain_.drain();
  if (ok || slot.kept.retention->wants(job.action))
    for (const DeviceCall& call : refused) note(slot, call);
  Region* const region = acquisition.result().region;
  const RegionRef ref = ok ? RegionRef{region, region->generation()} : RegionRef{};
  desk_.done(job, ref, ok, took, clock_.now());
}

void DeviceWork::retire_idle(DomainSlot& slot) {
  const ForkGate::Passage passage(fork_gate_);
  retire_all(*slot.domain, Actor::helper, [&](const DeviceCall& call) { note(slot, call); });
}

void DeviceWork::keep_to_mappings() {
  domains_.look_at_mappings();
  const Budget& budget = domains_.budget();
  if (budget.regions() <= budget.most_regions()) return;
  const ForkGate::Passage passage(fork_gate_);
  domains_.for_each([&](DomainSlot& slot) {
    for (Region* victim : slot.domain->begin_shrink(UINT64_MAX, budget.most_regions()))
      retire_claimed(*slot.domain, victim, Actor::helper, [&](const DeviceCall& call) { note(slot, call); });
  });
}

void DeviceWork::retire_all_idle() {
  domains_.for_each([this](DomainSlot& slot) { retire_idle(slot); });
}

void DeviceWork::serve_closing() {
  const int number = domains_.closing();
  if (number < 0) return;
  DomainSlot& slot = domains_.slot(number);
  // Releases from before: read later, they would have a domain that is empty registered ahead for.
  drain_.drain();
  drain_.end_runs(clock_.now());
  slot.kept.retention->memory_event({0, ~Address{0}});
  retire_idle(slot);
  domains_.emptied();
}

}  // namespace pinion
