#include "engine/run_log.h"

#include <algorithm>

#include "engine/site_names.h"

namespace pinion {

void RunLog::add_site(CallSite site) {
  if (!site || !known_sites_.insert(site).second) return;
  CallFrames frames;
  if (!call_site_frames(site, frames)) return;
  std::uint64_t addresses[kMaxCallFrames];
  std::copy_n(frames.return_addresses, frames.depth, addresses);
  writer_.add_site(site, addresses, frames.depth);
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
  writer_.for_each_site([](runlog::SiteEntry& site) { name_site(site); });
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    writer_.finish(counters, series, now, pinned);
  });
}

}  // namespace pinion
