#include "engine/device_work.h"

#include <vector>

namespace pinion {

void DeviceWork::note(DomainSlot& slot, Range pages, bool registration, const Error& error, Time begin,
                      Time end) {
  counters_.count_device_call(slot.by_helper, registration, error);
  progress_.fetch_add(1, std::memory_order_relaxed);
  log_.add_device_call(slot.number, pages, registration, error, begin, end);
}

Retired<Time> DeviceWork::retire(DomainSlot& slot, Region* region) {
  const Range pages = region->range();
  const Time begin = clock_.now();
  const Retired<Time> retired = retire_claimed(*slot.domain, region, Actor::helper);
  note(slot, pages, false, retired.error, begin, retired.end);
  return retired;
}

void DeviceWork::reap(DomainSlot& slot) {
  for (;;) {
    const ForkGate::Passage passage(fork_gate_);
    Region* const region = slot.domain->begin_reap();
    if (!region) return;
    retire(slot, region);
  }
}

void DeviceWork::act() {
  watch_.take_doomed();
  domains_.for_each([this](DomainSlot& slot) {
    reap(slot);
    while (slot.retention && act_once(slot)) drain_.drain();
  });
}

bool DeviceWork::act_once(DomainSlot& slot) {
  const ForkGate::Passage passage(fork_gate_);
  if (watch_.keeps_nothing()) slot.retention->stop_acting();
  const auto action = slot.retention->next(clock_.now());
  using Kind = HelperRetention::Action::Kind;
  if (action.kind == Kind::sleep) return false;
  if (action.kind == Kind::deregister) {
    const Time begin = clock_.now();
    const auto [end, error] = retire(slot, action.region);
    slot.retention->done(action, {}, true, end - begin, end);
  } else {
    register_ahead(slot, action);
  }
  return true;
}

void DeviceWork::register_ahead(DomainSlot& slot, const HelperRetention::Action& action) {
  Domain::Ticket ticket;
  ticket.pages = action.pages;
  ticket.access = action.access;
  ticket.lease = false;
  bool waited = false;
  Duration took = 0;
  struct Refused {
    Range pages;
    Error error;
    Time from, to;
  };
  std::vector<Refused> refused;
  const auto step = run_ticket(
      *slot.domain, ticket, Actor::helper, waited,
      [&](Range pages, bool registration, const Error& error, Time from, Time to) {
        if (registration && error)
          refused.push_back({pages, error, from, to});
        else
          note(slot, pages, registration, error, from, to);
        if (registration && !error) took = to - from;
      },
      [this](Range pages) { return watch_.watch(pages); });
  const bool ok = step == Domain::Step::leased;
  // Memory that went, of which the event had not come yet when this was decided, is no failure.
  if (!refused.empty()) drain_.drain();
  if (ok || slot.retention->wants(action))
    for (const Refused& call : refused) note(slot, call.pages, true, call.error, call.from, call.to);
  slot.retention->done(action, ok ? RegionRef{ticket.region, ticket.region->generation()} : RegionRef{}, ok,
                       took, clock_.now());
}

void DeviceWork::retire_idle(DomainSlot& slot) {
  const ForkGate::Passage passage(fork_gate_);
  retire_all(*slot.domain, Actor::helper, [&](Range pages, const Error& error, Time begin, Time end) {
    note(slot, pages, false, error, begin, end);
  });
}

void DeviceWork::retire_all_idle() {
  domains_.for_each([this](DomainSlot& slot) { retire_idle(slot); });
}

void DeviceWork::serve_closing() {
  const int number = domains_.closing();
  if (number < 0) return;
  DomainSlot& slot = domains_.slot(number);
  if (slot.retention) slot.retention->memory_event({0, ~Address{0}});
  retire_idle(slot);
  domains_.emptied();
}

void DeviceWork::shrink_to(std::uint64_t bytes) {
  domains_.for_each([&](DomainSlot& slot) {
    if (domains_.budget().bytes() <= bytes) return;
    const ForkGate::Passage passage(fork_gate_);
    for (Region* victim : slot.domain->begin_shrink(bytes)) retire(slot, victim);
  });
}

}  // namespace pinion
