#include "helper/run_log.h"

#include <algorithm>

#include "helper/site_names.h"

namespace pinion {

void RunLog::add_site(CallSite site) {
  if (!site || !known_sites_.insert(site).second) return;
  CallFrames frames;
  if (!call_site_frames(site, frames)) return;
  std::uint64_t addresses[kMaxCallFrames];
  std::copy_n(frames.return_addresses, frames.depth, addresses);
  writer_.add_site(site, addresses, frames.depth);
}

void RunLog::add_domains(const DomainTable& domains) {
  if (!writer_.is_open()) return;
  for (int i = static_cast<int>(writer_.domain_count()); i < domains.count(); ++i) {
    const DomainSlot& slot = domains.slot(i);
    const DeviceCapabilities can = slot.device->capabilities();
    runlog::DomainInfo info;
    info.device = slot.device_name.empty() ? slot.device->name() : slot.device_name;
    info.nic = can.spends_modelled_time ? slot.nic : "";
    info.description = slot.device->description();
    info.max_regions = can.caps.max_regions;
    info.max_region_bytes = can.caps.max_region_bytes;
    info.max_bytes = can.caps.max_bytes;
    writer_.add_domain(info);
  }
}

void RunLog::set_domain(const DomainSlot& slot, const runlog::Counters& share) {
  runlog::DomainState state{};
  state.registered_peak_bytes = share.registered_peak_bytes;
  state.registered_now_bytes = share.registered_now_bytes;
  state.regions_now = share.regions_now;
  state.registered_byte_ns = share.registered_byte_ns;
  state.acquires = share.acquires;
  state.hits = share.hits;
  state.waits = share.waits;
  state.misses = share.misses;
  state.bounced = share.bounced;
  state.observed = share.observed;
  state.registrations = share.registrations;
  state.deregistrations = share.deregistrations;
  state.registration_failures = share.registration_failures;
  // Readers of a log know pages: the lines are those of the pages that were registered.
  const double entries_a_page = slot.kept.costs.entries_a_page.value();
  state.fit_register_a_ns = slot.kept.costs.registration.a() * entries_a_page;
  state.fit_register_b_ns = slot.kept.costs.registration.b();
  state.fit_deregister_a_ns = slot.kept.costs.deregistration.a() * entries_a_page;
  state.fit_deregister_b_ns = slot.kept.costs.deregistration.b();
  writer_.set_domain_state(static_cast<std::uint32_t>(slot.number), state);
}

void RunLog::add(const runlog::Event& event) {
  if (!writer_.is_open()) return;
  add_site(event.site);
  writer_.append(event);
}

void RunLog::publish(const runlog::Counters& counters, Time now) {
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    writer_.update(counters, series, now);
  });
}

void RunLog::finish(const runlog::Counters& counters, Time now, std::uint64_t pinned) {
  std::vector<std::uint64_t> frames;
  writer_.for_each_site([&](runlog::SiteEntry& site) {
    name_site(site);
    python_of(site.hash, site.python);
    const std::uint32_t end = std::min(site.frame_count, site.first_frame + kNamedFrames);
    frames.insert(frames.end(), site.frames + site.first_frame, site.frames + end);
  });
  writer_.set_modules(modules_with(frames));
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    writer_.finish(counters, series, now, pinned);
  });
}

}  // namespace pinion
