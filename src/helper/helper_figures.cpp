#include "helper/helper_figures.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lease/lease.h"

namespace pinion {

Duration HelperFigures::work() const {
  double slept = 0;
  domains_.for_each([&](const DomainSlot& slot) {
    if (slot.device) slept += slot.device->modelled_sleep_seconds();
  });
  return thread_cpu_now() + std::llround(slept * kSecond);
}

void HelperFigures::account(Time now) { desk_.used(work(), now); }

void HelperFigures::note_acts() {
  if (acts_ != Acts::measured) return;
  const DomainSlot* registers = nullptr;
  domains_.for_each([&](const DomainSlot& slot) {
    if (registers == nullptr && slot.device && slot.device->capabilities().registers) registers = &slot;
  });
  if (lease_path_.acts_below())
    acts_ = Acts::verbs;
  else if (registers != nullptr && std::string_view(registers->device->name()) == "cuda")
    acts_ = Acts::cuda;
  else if (registers != nullptr)
    acts_ = Acts::pinned;
  else
    return;
  log_.set_acts(acts_, to_string(options_.retention),
                acts_ == Acts::verbs ? kBelowLibraries : registers->device->description());
}

runlog::Counters HelperFigures::tell() {
  account(clock_.now());
  runlog::Counters mine{};
  mine.helper_cpu_ns = static_cast<std::uint64_t>(thread_cpu_now());
  mine.helper_wakeups = wakeups_;
  mine.lateness = memory_.lateness;
  desk_.add_to(mine, clock_.now());
  mine.events_dropped = log_.events_dropped();
  mine.kernel_pinned_peak_bytes = pinned_.peak();
  mine.leave_pinned_bytes = drain_.leave_pinned_bytes();
  mine.leave_pinned_registration_ns = drain_.leave_pinned_registration_ns();
  mine.strict_keys_ns = modelled_strict_ns();
  tell_domains();
  counters_.tell(mine);
  return counters_.all();
}

/// The time of registering anew for each shared key that the program asked for, and of deregistering.
std::uint64_t HelperFigures::modelled_strict_ns() {
  double sum = 0;
  domains_.for_each([&](DomainSlot& slot) {
    const DomainMeter::Figures figures = slot.meter.read(clock_.now());
    const CostEstimates& costs = slot.kept.costs;
    const auto calls = static_cast<double>(figures.for_peers);
    const double entries = static_cast<double>(figures.pages_for_peers) * costs.entries_a_page.value();
    sum += calls * (costs.registration.b() + costs.deregistration.b()) +
           entries * (costs.registration.a() + costs.deregistration.a());
  });
  return static_cast<std::uint64_t>(std::max(0., sum));
}

void HelperFigures::tell_domains() {
  domains_.for_each([&](DomainSlot& slot) {
    // Victims know pages.
    slot.domain->set_call_pages(slot.kept.costs.call_pages());
    if (log_.is_open()) log_.set_domain(slot, counters_.of(slot.number));
  });
}

void HelperFigures::publish() {
  const runlog::Counters all = tell();
  log_.publish(all, clock_.now());
}

void HelperFigures::update(Time now) {
  sample();
  const runlog::Counters all = tell();
  const double books = all.bookkeeping_samples
                           ? static_cast<double>(all.bookkeeping_ns) * static_cast<double>(all.acquires) /
                                 static_cast<double>(all.bookkeeping_samples)
                           : 0;
  desk_.time_budget().kept_books(std::llround(books));
  log_.publish(all, now);
}

void HelperFigures::finish() {
  // Leave-pinned's helper deregisters as much or more.
  desk_.time_budget().leave_pinned_used(work());
  const runlog::Counters all = tell();
  log_.finish(all, clock_.now(), pinned_.finish());
}

}  // namespace pinion
