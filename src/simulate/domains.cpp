#include "simulate/domains.h"

#include <utility>

#include "retention/retention.h"

namespace pinion::simulate {

Domains::Domains(const ProcessSettings& settings, VirtualClock& clock, Observer& observer)
    : settings_(settings),
      clock_(clock),
      observer_(observer),
      device_(settings.nic, &clock),
      hugepages_(settings.hugepages, clock),
      share_(settings.room ? std::make_optional<node::NodeShare>(*settings.room) : std::nullopt),
      budget_(Limits{settings.limit, settings.limit_regions, "--limit"}, share_ ? &*share_ : nullptr) {
  if (!hugepages_.exist()) return;
  device_.count_entries([this](Range pages) { return hugepages_.entries(pages); });
  device_.during_registration([this](Range pages) { hugepages_.pinned(pages); });
}

void Domains::add(std::unique_ptr<Predictor> predictor, Desk& desk) {
  OwnDomain& own = domains_.emplace_back(*this);
  pointers_.push_back(&own.domain);
  own.kept.domain = &own.domain;
  own.kept.retention =
      make_retention({.kind = settings_.retention,
                      .lru_bytes = settings_.lru_bytes,
                      .collapse = {.unit = hugepages_.may_collapse() ? settings_.hugepages.unit : 0}},
                     own.domain, std::move(predictor), own.kept.costs, desk.time_budget());
  desk.add(own.kept);
  if (settings_.nic.register_ns_per_page > 0)
    own.domain.set_call_pages(settings_.nic.register_ns_base / settings_.nic.register_ns_per_page);
}

std::size_t Domains::change_memory(Range range) {
  brackets_.open(range);
  const std::size_t doomed = of(range).doom(range);
  brackets_.close(range);
  large_.erase(range);
  hugepages_.gone(range);
  return doomed;
}

Domains::LetGo Domains::let_all_go() {
  LetGo gone;
  const auto retire = [&](Region* region) {
    const Time now = clock_.now();
    static_cast<void>(device_.deregister(region->key, Actor::helper));  // the model's device refuses none
    gone.takes += clock_.now() - now;
    clock_.set(now);
    of(region).finish_retire(region);
    ++gone.regions;
  };
  for (OwnDomain& own : domains_) {
    while (Region* region = own.domain.begin_reap()) retire(region);
    for (const RegionRef& ref : own.domain.idle_regions())
      if (Region* region = own.domain.begin_retire(ref)) retire(region);
  }
  budget_.end_allowance();
  return gone;
}

void Domains::registered_changed(Time now, Time since, std::int64_t bytes, int) {
  observer_.registered(now, since, bytes);
}

}  // namespace pinion::simulate
